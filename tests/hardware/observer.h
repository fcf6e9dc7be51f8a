// What the drivers themselves count for a process: the judge of the cap. Used by programs that run
// without the library. NVIDIA: NVML's list of compute processes. AMD: KFD's vram_<gpu_id>.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hooks/smi/nvml/abi.h"
#include "tests/hardware/probe.h"

namespace hardware {

struct Listed {
  int pid = 0;
  uint64_t bytes = 0;
  bool known = true;  // the driver told how much
};

struct NvmlMemory {
  uint64_t total = 0, used = 0, reserved = 0, total_v2 = 0;
  bool has_v2 = false;
};

// Of NVIDIA's first device, as CUDA numbers them. All throw Unmeasured.
namespace nvml {

void* function(const char* name);
std::string uuid();
fracgpu::nvml::nvmlDevice_t device();
std::vector<Listed> processes();
// Of one process: the sum of its entries. False when the list does not name it, or not how much.
bool bytes_of(int pid, uint64_t* bytes);
NvmlMemory memory();
std::string driver_version();
std::string name();

}  // namespace nvml

struct KfdDevice {
  uint32_t node = 0, gpu_id = 0, location = 0;
  uint64_t vram_bytes = 0;
};

namespace kfd {

std::vector<KfdDevice> devices();
bool bytes_of(int pid, uint32_t gpu_id, uint64_t* bytes);
// All of the device, by amdgpu's own count (mem_info_vram_used); false where it does not tell.
bool device_used(const KfdDevice& device, uint64_t* bytes);

}  // namespace kfd

enum class Vendor { nvidia, amd };

// The processes of a session, watched while a command runs.
class Watched {
 public:
  Watched(Vendor vendor, int session) : vendor_(vendor), session_(session) {}

  // One look. Adds up what the drivers count for the session's processes, and keeps the most.
  void look();
  uint64_t most() const { return most_; }
  bool named() const { return named_; }  // at least once, with an amount
  uint64_t device_most() const { return device_most_; }
  uint64_t looks() const { return looks_; }

 private:
  bool mine(int pid) const;

  Vendor vendor_;
  int session_;
  uint64_t most_ = 0, device_most_ = 0, looks_ = 0;
  bool named_ = false;
};

// What the first device has in use, by its own count. False where it does not tell.
bool device_used(Vendor vendor, uint64_t* bytes);

// Without the library, beside a probe that runs with it: a program of its own that answers what the
// driver counts for this process, and what its ledger has.
class Books {
 public:
  explicit Books(Vendor vendor = Vendor::nvidia);
  ~Books();
  Books(const Books&) = delete;
  Books& operator=(const Books&) = delete;
  struct Page {
    uint64_t driver = 0, ledger = 0, device = 0;
    bool driver_knows = false;
  };
  // Throws Unmeasured when there is no ledger or the witness does not answer.
  Page look();

 private:
  int pid_ = -1;
  int to_ = -1, from_ = -1;
  std::string buffer_;
};

// The other side of it.
int run_witness(const Options& options);

}  // namespace hardware
