// The GPUs that the HSA runtime shows this process, and which of them an agent, a memory pool or a
// region belongs to.
//
// Known from one walk over the runtime's lists, made when a handle is met that is not known yet.
// ROCR_VISIBLE_DEVICES changes which devices are in the lists, and not their identity: a device is
// identified by its number in the kernel's topology.
#pragma once

#include <cstdint>

#include "hooks/hsa/runtime.h"
#include "hooks/usage/kfd_usage.h"
#include "shim/process/process.h"

namespace fracgpu::hsa {

struct Device {
  hsa_agent_t agent{};
  kfd::Key key;           // empty: not known to the kernel; nothing may be allocated on it then
  uint64_t gpu_id = 0;    // KFD's number in the key
  int slot = 0;           // of Process, by the device's place among all of the machine
  uint64_t physical = 0;  // bytes, as the runtime reports
  uint32_t bdf_id = 0;    // bus << 8 | device << 3 | function
  uint32_t domain = 0;
  Text<40> uuid;  // "GPU-…"; may be shared by the partitions of one GPU
};

enum class Handle : uint8_t { agent, pool, region };

inline constexpr int kMaxDevices = Process::kSlotsOfVendor / 2;

struct Owner {
  int device;    // its number among those that the runtime lists; -1: host memory, a CPU, or a
                 // handle that the runtime does not know
  int pool = 0;  // of a pool or region: its number among those of the device
};
Owner owner_of(Handle kind, uint64_t handle);

int device_count();

// A copy of what is known of a device below a `device_count()`, and of it the agent alone, which
// takes no lock. One that was forgotten meanwhile stays what it was until a walk finds another in
// its place.
Device device(int number);
hsa_agent_t agent_of(int number);

// Forgets all of it: the runtime was shut down, and its handles may come to mean something else.
// Other threads may be reading.
void forget_devices();

// The slot of the n-th device of the machine, as rocm-smi counts them.
constexpr int slot_of(int index) {
  return Process::kAmdSlots + index;
}
inline constexpr int kMostOfMachine = Process::kSlotsOfVendor / 2;

// The ledger's device index of a device, or Process::kNotCapped / kFault.
int device_index_of(Process& process, int number);

// The same of an agent, or Process::kUnknownDevice where no call has needed it yet: joins nothing,
// makes no system call and takes no lock.
int known_device_index(const Process& process, hsa_agent_t agent);
// The same of the device that KFD calls by this number.
int known_device_index(const Process& process, uint64_t gpu_id);

// A pool of the device's own memory; 0 where none is known.
hsa_amd_memory_pool_t pool_of(const char* device_key);

}  // namespace fracgpu::hsa
