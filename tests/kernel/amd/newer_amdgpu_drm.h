// What newer kernels' amdgpu_drm.h has and older headers lack.
#pragma once

#include <amdgpu_drm.h>

#include <cstdint>

namespace kfd {

constexpr uint32_t kFamilyGc11 = 145;   // AMDGPU_FAMILY_GC_11_0_0
constexpr uint32_t kInfoMaxIbs = 0x22;  // AMDGPU_INFO_MAX_IBS

// drm_amdgpu_info_device of Linux 6.4.
struct NewerDevice {
  drm_amdgpu_info_device older;
  uint64_t min_engine_clock, min_memory_clock;
  uint32_t tcp_cache_size, num_sqc_per_wgp;
  uint32_t sqc_data_cache_size, sqc_inst_cache_size;
  uint32_t gl1c_cache_size, gl2c_cache_size;
  uint64_t mall_size;
  uint32_t enabled_rb_pipes_mask_hi;
};

}  // namespace kfd
