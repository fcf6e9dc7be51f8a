// What NVML's lists of processes mean: whose PIDs are in them, and whose memory stands beside a
// PID. Both depend on the driver's version, on the flavour of its kernel modules, and on the PID
// namespace of who asks; see list_meaning.cc. Nothing here calls NVML.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>

#include "hooks/smi/nvml/driver_version.h"

namespace fracgpu::nvml {

enum class Modules { unknown, closed, open };

// The flavour by the text of /proc/driver/nvidia/version, and that of this machine. The latter
// reads the file until it could be read once; any thread may call it.
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
  // Whether the bytes beside a process's PID are what it holds, and the same of a thread's PID.
  // Where not, they are 0, or what another process holds.
  bool amounts = true, amounts_of_threads = true;
};

ListMeaning meaning_of_lists(const DriverVersion& version, Modules modules, bool in_host_namespace);
// For this process.
[[gnu::cold]] ListMeaning meaning_of_lists(const DriverVersion& version);

// Whether a PID of the caller's namespace in a list stands for this process: its own, or that of
// one of its threads. Threads are remembered when they are gone, since the driver goes on listing
// them. Any thread may call it.
[[gnu::cold]] bool stands_for_self(uint32_t pid, const ListMeaning& meaning);

// The bytes of one process, of which a list may have several entries. Repeated ones have the whole
// each; those of different threads or MIG instances have a part each.
class ListedBytes {
 public:
  struct Entry {
    uint32_t pid = 0, gpu_instance = 0, compute_instance = 0;
    uint64_t bytes = 0;
  };

  // `is_process`: the entry has the PID of the process itself and not of one of its threads.
  void add(const Entry& entry, bool is_process, const ListMeaning& meaning);

  bool any() const { return any_; }
  // False where the driver does not tell. 0 where nothing was added.
  bool sum(uint64_t& bytes) const;

 private:
  static constexpr int kMost = 32;  // threads that open the driver, or instances

  Entry entries_[kMost];
  int count_ = 0;
  bool any_ = false;
  bool not_told_ = false;    // of some entry
  bool of_process_ = false;  // an entry has all that its threads have
};

}  // namespace fracgpu::nvml
