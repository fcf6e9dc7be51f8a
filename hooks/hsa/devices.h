// The GPUs that the HSA runtime shows this process, and the GPU that an agent, a memory pool or a
// region belongs to.
//
// One walk over the runtime's lists finds them all. A call that meets an unknown handle makes that
// walk. ROCR_VISIBLE_DEVICES changes which devices the lists contain, but not their identity: a
// device is identified by its number in the kernel's topology.
// identified by its number in the kernel's topology.
#pragma once

#include <cstdint>

#include "hooks/hsa/runtime.h"
#include "hooks/usage/kfd_usage.h"
#include "shim/process/process.h"

namespace fracgpu::hsa {

struct Device {
  hsa_agent_t agent{};
  kfd::Key key;           // empty if the kernel does not know it: nothing may then be allocated
  uint64_t gpu_id = 0;    // KFD's number in the key
  int slot = 0;           // in Process, by the device's place among all of the machine
  uint64_t physical = 0;  // bytes, as the runtime reports them
  uint32_t bdf_id = 0;    // bus << 8 | device << 3 | function
  uint32_t domain = 0;
  Text<40> uuid;  // "GPU-…"; may be shared by the partitions of one GPU
};

enum class Handle : uint8_t { agent, pool, region };

inline constexpr int kMaxDevices = Process::kSlotsOfVendor / 2;

struct Owner {
  int device;  // its number in the runtime's lists; -1 for host memory, a CPU, or a handle that the
               // runtime does not know
  int pool = 0;  // of a pool or region: its number among those of the device
};
Owner owner_of(Handle kind, uint64_t handle);

int device_count();

// `device` returns a copy of all data of a device, and `agent_of` only its agent, without a lock.
// `number` must be below `device_count()`. A forgotten device keeps its data until a walk puts
// another device in its place.
Device device(int number);
hsa_agent_t agent_of(int number);

// Forgets all devices. The runtime was shut down, so its handles may come to mean something else.
// Other threads may be reading meanwhile.
void forget_devices();

// The slot of the n-th device of the machine, as rocm-smi counts them.
constexpr int slot_of(int index) {
  return Process::kAmdSlots + index;
}
inline constexpr int kMostOfMachine = Process::kSlotsOfVendor / 2;

// The ledger's device index of a device, or Process::kNotCapped / kFault.
int device_index_of(Process& process, int number);

// The same for an agent, or Process::kUnknownDevice if no call has needed the device yet. This
// joins nothing, makes no system call and takes no lock.
int known_device_index(const Process& process, hsa_agent_t agent);
// The same for the device with this KFD number.
int known_device_index(const Process& process, uint64_t gpu_id);

// A pool of the device's own memory. Its handle is 0 if none is known.
hsa_amd_memory_pool_t pool_of(const char* device_key);

}  // namespace fracgpu::hsa
