// Reports of a device's memory: hipMemGetInfo, hipDeviceTotalMem and the device's properties.
//
// The runtime answers first, so that errors are its own. Then total becomes the cap, and free
// becomes the room left under it. HIP 5.2 computes free from its own process's allocations only.
// The ledger counts the whole tenant's.
#include <string.h>

#include <algorithm>

#include "hooks/hip/hook.h"

namespace fracgpu::hip {
namespace {

uint64_t cap_bytes(Process& process, int device_index) {
  return device_index == Process::kFault ? 0 : process.ledger.cap(device_index) * layout::kUnit;
}

// Lowers the number at `place` to the device's cap.
void lower_to_cap(Process& process, int ordinal, void* place) {
  const int device_index = device_index_of(process, ordinal);
  if (device_index == Process::kNotCapped) return;
  size_t bytes = 0;
  memcpy(&bytes, place, sizeof bytes);
  bytes = std::min<size_t>(bytes, cap_bytes(process, device_index));
  memcpy(place, &bytes, sizeof bytes);
}

template <typename Real>
hipError_t properties_of(const char* api, void* properties, int device, size_t total_memory,
                         const Real& real) {
  Hook hook(api);
  const hipError_t result = real(properties, device);
  if (result == kSuccess && hook.active() && properties != nullptr) {
    lower_to_cap(hook.process(), device, static_cast<char*>(properties) + total_memory);
  }
  return result;
}

}  // namespace

hipError_t hipMemGetInfo(size_t* free, size_t* total) {
  Hook hook("hipMemGetInfo");
  const hipError_t result = real::hipMemGetInfo(free, total);
  if (result != kSuccess || !hook.active()) return result;
  Process& process = hook.process();
  const int device_index = current_device_index(process);
  if (device_index == Process::kNotCapped) return result;
  const uint64_t cap = cap_bytes(process, device_index);
  if (total != nullptr) *total = std::min<size_t>(*total, cap);
  if (free != nullptr) {
    const uint64_t held = device_index == Process::kFault ? cap : process.tenant_held(device_index);
    *free = std::min<size_t>(*free, cap - std::min(cap, held));
  }
  return result;
}

hipError_t hipDeviceTotalMem(size_t* bytes, int device) {
  Hook hook("hipDeviceTotalMem");
  const hipError_t result = real::hipDeviceTotalMem(bytes, device);
  if (result == kSuccess && hook.active() && bytes != nullptr) {
    lower_to_cap(hook.process(), device, bytes);
  }
  return result;
}

hipError_t hipGetDeviceProperties(void* properties, int device) {
  return properties_of("hipGetDeviceProperties", properties, device, kTotalMemoryR0000,
                       real::hipGetDeviceProperties);
}

hipError_t hipGetDevicePropertiesR0000(void* properties, int device) {
  return properties_of("hipGetDeviceProperties", properties, device, kTotalMemoryR0000,
                       real::hipGetDevicePropertiesR0000);
}

hipError_t hipGetDevicePropertiesR0600(void* properties, int device) {
  return properties_of("hipGetDeviceProperties", properties, device, kTotalMemoryR0600,
                       real::hipGetDevicePropertiesR0600);
}

}  // namespace fracgpu::hip
