// The vendors that are built in: their libraries for the doors, their truth for the core.
#include <string.h>

#include "hooks/amdsmi/library.h"
#include "hooks/cuda/driver.h"
#include "hooks/hip/runtime.h"
#include "hooks/hsa/runtime.h"
#include "hooks/kfd/truth.h"
#include "hooks/nvml/library.h"
#include "hooks/nvml/truth.h"
#include "hooks/rocmsmi/library.h"
#include "shim/truth.h"
#include "shim/vendor_library.h"

namespace fracgpu {

VendorLibrary* const* vendor_libraries(size_t& count) {
  static constinit VendorLibrary* const libraries[] = {&cuda::driver_library, &nvml::library,
                                                       &hip::runtime_library, &hsa::runtime_library,
                                                       &amdsmi::library,      &rocmsmi::library};
  count = sizeof libraries / sizeof libraries[0];
  return libraries;
}

namespace truth {

bool bytes_of_self(const char* device_key, uint64_t& bytes) {
  return kfd::owns(device_key) ? kfd::bytes_of_self(device_key, bytes)
                               : nvml::bytes_of_self(device_key, bytes);
}
bool bytes_of(uint32_t host_pid, const char* device_key, uint64_t& bytes) {
  return kfd::owns(device_key) ? kfd::bytes_of(host_pid, device_key, bytes)
                               : nvml::bytes_of(host_pid, device_key, bytes);
}
bool index_of(const char* device_key, int& index) {
  return kfd::owns(device_key) ? kfd::index_of(device_key, index)
                               : nvml::index_of(device_key, index);
}
bool physical_bytes(const char* device_key, uint64_t& bytes) {
  return kfd::owns(device_key) ? kfd::physical_bytes(device_key, bytes)
                               : nvml::physical_bytes(device_key, bytes);
}
bool used_bytes(const char* device_key, uint64_t& bytes) {
  return !kfd::owns(device_key) && nvml::used_bytes(device_key, bytes);
}
bool is_part(const char* device_key) {
  return nvml::is_mig_key(device_key);
}
bool whole_of(const char* device_key, Text<64>& whole_key) {
  return nvml::gpu_of(device_key, whole_key);
}
bool bus_id_of(const char* device_key, BusId& bus_id) {
  return kfd::owns(device_key) ? kfd::bus_id_of(device_key, bus_id)
                               : nvml::bus_id_of(device_key, bus_id);
}

Text<96> describe(const char* device_key) {
  Text<96> text(device_key);
  BusId at;
  if (kfd::owns(device_key) && kfd::bus_id_of(device_key, at)) {
    text.append(" ({:04x}:{:02x}:{:02x}.{:x} partition {})", at.domain, at.bus, at.device,
                at.function, at.partition);
  }
  return text;
}

bool device_may_exist(const Selector& selector) {
  if (kfd::owns(selector.key.c_str())) return kfd::device_may_exist(selector);
  // An index or a bus id may be meant for either vendor: each numbers its own devices from 0.
  return (selector.key.empty() && kfd::device_may_exist(selector)) ||
         nvml::device_may_exist(selector);
}

}  // namespace truth

}  // namespace fracgpu
