// The vendors that are built in: their libraries for the doors, their truth for the core.
#include <string.h>

#include "hooks/cuda/driver.h"
#include "hooks/nvml/library.h"
#include "hooks/nvml/truth.h"
#include "shim/truth.h"
#include "shim/vendor_library.h"

namespace fracgpu {

VendorLibrary* const* vendor_libraries(size_t& count) {
  static constinit VendorLibrary* const libraries[] = {&cuda::driver_library, &nvml::library};
  count = sizeof libraries / sizeof libraries[0];
  return libraries;
}

namespace truth {

bool bytes_of_self(const char* device_key, uint64_t& bytes) {
  return nvml::bytes_of_self(device_key, bytes);
}
bool bytes_of(uint32_t host_pid, const char* device_key, uint64_t& bytes) {
  return nvml::bytes_of(host_pid, device_key, bytes);
}
bool index_of(const char* device_key, int& index) {
  return nvml::index_of(device_key, index);
}
bool physical_bytes(const char* device_key, uint64_t& bytes) {
  return nvml::physical_bytes(device_key, bytes);
}
bool device_may_exist(const char* device_key, int index) {
  return nvml::device_may_exist(device_key, index);
}

}  // namespace truth

}  // namespace fracgpu
