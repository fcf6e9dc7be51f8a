// The memory that NVML reports, and with it nvidia-smi, nvtop and every monitor: the capped
// device, with what the tenant holds as used and the rest as free.
//
// NVML calls some of its own exports through its PLT, so these hooks also fire inside NVML; the
// outermost call alone is changed.
#include <algorithm>

#include "hooks/nvml/library.h"
#include "shim/process.h"
#include "shim/report.h"

namespace fracgpu::nvml {
namespace {

// Asks NVML with `call()`; then, if the device is capped, hands the tenant's view to `show`.
template <typename Memory, typename Call, typename Show>
nvmlReturn_t memory_info(nvmlDevice_t device, Memory* memory, Call call, Show show) {
  library.resolve();
  HookScope scope;
  const nvmlReturn_t result = call();
  if (result != kSuccess || !scope.outermost() || memory == nullptr) return result;
  Process* process = Process::self();
  char uuid[kUuidBytes];
  TenantView view;
  if (process != nullptr && real::nvmlDeviceGetUUID(device, uuid, sizeof uuid) == kSuccess &&
      process->view(uuid, memory->total, view)) {
    memory->total = std::min<unsigned long long>(memory->total, view.cap);
    memory->used = view.used;
    memory->free = memory->total - std::min<unsigned long long>(memory->total, view.used);
    show(*memory);
  }
  return result;
}

}  // namespace

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  return memory_info(
      device, memory, [&] { return real::nvmlDeviceGetMemoryInfo(device, memory); },
      [](nvmlMemory_t&) {});
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  // What the driver reserves of the real device is none of the tenant's: total = used + free.
  return memory_info(
      device, memory, [&] { return real::nvmlDeviceGetMemoryInfo_v2(device, memory); },
      [](nvmlMemory_v2_t& shown) { shown.reserved = 0; });
}

}  // namespace fracgpu::nvml
