// The meaning of NVML's process lists: which namespace the PIDs belong to, and whose memory an
// entry shows. Both depend on the driver's version, on the flavour of its kernel modules, and on
// the caller's PID namespace; see list_meaning.cc. Nothing here calls NVML.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>

#include "hooks/smi/nvml/driver_version.h"

namespace fracgpu::nvml {

enum class Modules { unknown, closed, open };

// `modules_in` returns the flavour by the text of /proc/driver/nvidia/version, and `modules_here`
// that of this machine. `modules_here` reads the file until it succeeds once. Any thread may call
// it.
Modules modules_in(std::string_view version_file);
[[gnu::cold]] Modules modules_here();

struct ListMeaning {
  enum class Pids {
    unknown,  // of the host or of the caller's namespace
    host,     // of the host, which is not the caller's namespace
    callers,
  };
  Pids pids = Pids::unknown;
  bool threads = false;  // a PID may be that of the thread that opened the driver
  // Whether the bytes in a process's entry are what the process holds, and the same for a thread's
  // entry. Otherwise they are 0 or what another process holds.
  bool amounts = true, amounts_of_threads = true;
};

ListMeaning meaning_of_lists(const DriverVersion& version, Modules modules, bool in_host_namespace);
// For this process.
[[gnu::cold]] ListMeaning meaning_of_lists(const DriverVersion& version);

// Whether a listed PID of the caller's namespace stands for this process: its own PID, or that of
// one of its threads. Ended threads are remembered, because the driver still lists them. Any thread
// may call it.
[[gnu::cold]] bool stands_for_self(uint32_t pid, const ListMeaning& meaning);

// The bytes of one process, which may have several entries in a list. Repeated entries each have
// the whole amount. Entries of different threads or MIG instances each have a part.
class ListedBytes {
 public:
  struct Entry {
    uint32_t pid = 0, gpu_instance = 0, compute_instance = 0;
    uint64_t bytes = 0;
  };

  // `is_process`: the entry has the PID of the process itself, not of one of its threads.
  void add(const Entry& entry, bool is_process, const ListMeaning& meaning);

  bool any() const { return any_; }
  // False if the driver does not report the amount. The sum is 0 if nothing was added.
  bool sum(uint64_t& bytes) const;

 private:
  static constexpr int kMost = 32;  // threads that open the driver, or instances

  Entry entries_[kMost];
  int count_ = 0;
  bool any_ = false;
  bool not_told_ = false;    // for at least one entry
  bool of_process_ = false;  // an entry has the sum of all threads
};

}  // namespace fracgpu::nvml
