// The built-in vendors. Another vendor needs a folder of hooks and one struct here.
#include "hooks/cuda/driver.h"
#include "hooks/cuda/kernel.h"
#include "hooks/cuda/other_libraries.h"
#include "hooks/cuda/recorded.h"
#include "hooks/drm/amdgpu.h"
#include "hooks/hip/runtime.h"
#include "hooks/hsa/kernel.h"
#include "hooks/hsa/recorded.h"
#include "hooks/hsa/runtime.h"
#include "hooks/smi/amdsmi/library.h"
#include "hooks/smi/nvml/library.h"
#include "hooks/smi/rocmsmi/library.h"
#include "hooks/usage/kfd_usage.h"
#include "hooks/usage/nvml_usage.h"
#include "shim/vendor/backend.h"

namespace fracgpu {
namespace {

constinit VendorLibrary* const amd_libraries[] = {&hip::runtime_library, &hsa::runtime_library,
                                                  &amdsmi::library, &rocmsmi::library};
constinit const VendorBackend amd = {
    .name = "AMD",
    .libraries = amd_libraries,
    .owns = kfd::owns,
    .record_calls = hsa::record_calls,
    .usage_of_self = kfd::bytes_of_self,
    .usage_of = kfd::bytes_of,
    .mapped_by_self = kfd::mapped_by_self,
    .counts_contexts = false,
    .brings_others = drm::may_be_graphics_driver,
    .others_loaded = drm::watch_graphics_drivers,
    .usage_of_all = kfd::used_bytes,
    .most_held_by_dead = kfd::most_held_by_dead,
    .trim = hsa::trim_runtime,
    .frees_after_the_end = true,
    .index_of = kfd::index_of,
    .physical_bytes = kfd::physical_bytes,
    .bus_id_of = kfd::bus_id_of,
    .is_partition =
        [](const char* device_key) {
          Text<64> uuid;
          return kfd::uuid_of(device_key, uuid);
        },
    .parent_of = kfd::uuid_of,
    .device_may_exist = kfd::device_may_exist,
    .describe = kfd::describe,
};

constinit VendorLibrary* const nvidia_libraries[] = {&cuda::driver_library, &nvml::library};
constinit const VendorBackend nvidia = {
    .name = "NVIDIA",
    .libraries = nvidia_libraries,
    .owns = [](const char* device_key) { return !kfd::owns(device_key); },
    .start = nvml::start,
    .record_calls = cuda::record_calls,
    .usage_of_self = nvml::bytes_of_self,
    .usage_of = nvml::bytes_of,
    .counts_managed = false,
    .brings_others = cuda::may_be_other_library,
    .others_loaded = cuda::watch_other_libraries,
    .hands_on_freed_exports = true,
    .usage_of_all = nvml::used_bytes,
    .trim = cuda::trim_driver,
    .index_of = nvml::index_of,
    .physical_bytes = nvml::physical_bytes,
    .bus_id_of = nvml::bus_id_of,
    .is_partition = nvml::is_mig_key,
    .parent_of = nvml::gpu_of,
    .device_may_exist = nvml::device_may_exist,
};

constinit const VendorBackend* const all[] = {&nvidia, &amd};

}  // namespace

constinit const std::span<const VendorBackend* const> vendor_backends = all;

}  // namespace fracgpu
