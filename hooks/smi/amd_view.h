// Common parts of the hooks of AMD's two tool libraries (libamd_smi, librocm_smi64): which of the
// tenant's devices are capped, and process lists without other tenants' entries.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hooks/usage/kfd_usage.h"
#include "shim/config/identity.h"
#include "shim/process/tenant_view.h"
#include "shim/vendor/process_list.h"

namespace fracgpu::kfd {

// The tenant's view of a device. The cap is at most the device's size. False if the device is not
// capped. `physical` is the size in bytes that the library reports. It is used only if the kernel
// reports none, so that a share of the device means the same everywhere. (For an APU, the libraries
// know only the memory that the firmware sets aside: 512 MiB of the 110 GiB that KFD and HIP can
// give, rocm-systems PR 8475.)
bool view(const Observation& look, const Key& key, uint64_t physical, TenantView& view);

// Whether any device of the machine is capped for the tenant.
bool any_capped(const Observation& look);

// Bytes that a process of the tenant holds on all devices together: the ledger's figure for capped
// devices, the kernel's for others.
uint64_t held_everywhere(const Observation& look, int slot, uint32_t pid);

// A process in KFD's lists of all devices together. It is the same in both libraries and in all
// their versions.
struct ComputeProcess {
  uint32_t process_id;
  uint32_t unused;
  uint64_t vram_usage;  // bytes
  uint64_t sdma_usage;
  uint32_t cu_occupancy;
  uint32_t unused_too;
};
static_assert(sizeof(ComputeProcess) == 32 && offsetof(ComputeProcess, vram_usage) == 8);

// Changes an entry to the tenant's view of the process; false for a process of another tenant.
bool show(const Observation& look, ComputeProcess& process);

// Lists all compute processes as both libraries do. Without an array, only the count is returned.
// If the array is too small, it is filled, the result is `too_small`, and the count stays
// unchanged. `real` stands for the library's own function.
template <typename Real>
int list_compute_processes(const Observation& look, int too_small, void* list, uint32_t* count,
                           const Real& real) {
  ProcessList entries(sizeof(ComputeProcess));
  const int result = entries.read_all(too_small, real);
  if (result != 0) return result;
  entries.keep_if(
      [&](unsigned char* entry) { return show(look, *reinterpret_cast<ComputeProcess*>(entry)); });
  const uint32_t capacity = *count;
  if (list != nullptr) {
    entries.copy_to(list, capacity);
    if (capacity < entries.count()) return too_small;
  }
  *count = entries.count();
  return result;
}

// Answers a query about one process. Returns `not_found`, the library's own error, for a process of
// another tenant. `edit(observation, slot)` changes the result of `real`.
template <typename Real, typename Edit>
int report_process(bool active, uint32_t pid, int not_found, const Real& real, const Edit& edit) {
  Process* process = active ? Process::self() : nullptr;
  if (process == nullptr) return real();
  const Observation look(*process);
  if (!any_capped(look)) return real();
  const int slot = look.find(process_of_either(pid));
  if (slot < 0) return not_found;
  const int result = real();
  if (result == 0) edit(look, slot);
  return result;
}

}  // namespace fracgpu::kfd
