// The memory that NVML reports, and so nvidia-smi, nvtop and every monitor. They show the capped
// device, with the tenant's holdings as used and the rest as free.
//
// NVML calls some of its own exports through its PLT, so these hooks also run inside NVML. Only the
// outermost call is changed.
#include <algorithm>

#include "hooks/smi/nvml/library.h"
#include "hooks/smi/nvml/mig_instances.h"
#include "hooks/smi/nvml/usable_memory.h"
#include "shim/process/hook_scope.h"
#include "shim/process/tenant_view.h"

namespace fracgpu::nvml {
namespace {

using Bytes = unsigned long long;

// The tenant's view of a device with the given real figures. For a GPU in MIG mode, it is the sum
// over its instances. False if no part of it is capped.
bool tenants_view(Process& process, nvmlDevice_t device, Bytes real_total, Bytes real_used,
                  TenantView& shown) {
  const Observation observation(process);
  bool capped = false;
  shown = TenantView{};
  for (const Part& part : Parts(device)) {
    nvmlMemory_t memory = {.total = real_total, .free = 0, .used = real_used};
    if (part.handle != device && real::nvmlDeviceGetMemoryInfo(part.handle, &memory) != kSuccess) {
      continue;
    }
    TenantView view;
    uint64_t usable = memory.total;
    usable_bytes(part.handle, usable);
    if (observation.device(part.key, usable, view)) {
      capped = true;
    } else {
      view = {.cap = memory.total, .used = memory.used};
    }
    shown.cap += std::min<uint64_t>(view.cap, memory.total);
    shown.used += view.used;
  }
  shown.cap = std::min<uint64_t>(shown.cap, real_total);
  return capped;
}

// Calls `call()`, NVML's own function. If the device is capped, then overwrites the answer with the
// tenant's view.
template <typename Memory, typename Call>
nvmlReturn_t memory_info(nvmlDevice_t device, Memory* memory, Call call) {
  library.resolve();
  HookScope scope;
  const nvmlReturn_t result = call();
  if (result != kSuccess || !scope.outermost() || memory == nullptr) return result;
  Process* process = Process::self();
  TenantView view;
  if (process == nullptr || !tenants_view(*process, device, memory->total, memory->used, view)) {
    return result;
  }
  memory->total = view.cap;
  // The device is shown as full if the cap was lowered below what is held, or if the driver took
  // more than was reserved.
  memory->used = std::min(view.used, view.cap);
  memory->free = memory->total - memory->used;
  // The driver's reserve on the real device is not part of the cap: total = used + free.
  if constexpr (requires { memory->reserved; }) memory->reserved = 0;
  return result;
}

// The size of a MIG instance. NVML has no attributes for a whole device.
template <typename Real>
nvmlReturn_t attributes(nvmlDevice_t device, nvmlDeviceAttributes_t* attributes, const Real& real) {
  library.resolve();
  HookScope scope;
  const nvmlReturn_t result = real(device, attributes);
  if (result != kSuccess || !scope.outermost() || attributes == nullptr) return result;
  Process* process = Process::self();
  nvmlMemory_t memory = {};
  TenantView view;
  if (process != nullptr && real::nvmlDeviceGetMemoryInfo(device, &memory) == kSuccess &&
      tenants_view(*process, device, memory.total, memory.used, view)) {
    attributes->memorySizeMB = std::min<Bytes>(attributes->memorySizeMB, view.cap >> 20);
  }
  return result;
}

}  // namespace

// For a GPU in confidential-computing mode. The ledger does not distinguish protected memory.
nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t device,
                                                          nvmlMemory_t* memory) {
  return memory_info(device, memory, [&] {
    return real::nvmlDeviceGetConfComputeProtectedMemoryUsage(device, memory);
  });
}

nvmlReturn_t nvmlDeviceGetConfComputeMemSizeInfo(nvmlDevice_t device,
                                                 nvmlConfComputeMemSizeInfo_t* sizes) {
  library.resolve();
  HookScope scope;
  const nvmlReturn_t result = real::nvmlDeviceGetConfComputeMemSizeInfo(device, sizes);
  if (result != kSuccess || !scope.outermost() || sizes == nullptr) return result;
  Process* process = Process::self();
  const Bytes real_total = (sizes->protectedMemSizeKib + sizes->unprotectedMemSizeKib) << 10;
  TenantView view;
  if (process == nullptr || !tenants_view(*process, device, real_total, 0, view)) return result;
  const Bytes cap = view.cap >> 10;
  sizes->protectedMemSizeKib = std::min(sizes->protectedMemSizeKib, cap);
  sizes->unprotectedMemSizeKib =
      std::min(sizes->unprotectedMemSizeKib, cap - sizes->protectedMemSizeKib);
  return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  return memory_info(device, memory, [&] { return real::nvmlDeviceGetMemoryInfo(device, memory); });
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  return memory_info(device, memory,
                     [&] { return real::nvmlDeviceGetMemoryInfo_v2(device, memory); });
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t* out) {
  return attributes(device, out, real::nvmlDeviceGetAttributes);
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t* out) {
  return attributes(device, out, real::nvmlDeviceGetAttributes_v2);
}

}  // namespace fracgpu::nvml
