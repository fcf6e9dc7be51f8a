// The part of librocm_smi64's ABI that the hooks need: our own declarations, which tests/abi
// compares with rocm_smi.h.
#pragma once

#include <cstdint>

namespace fracgpu::rocmsmi {

using rsmi_status_t = int;
using rsmi_memory_type_t = int;

inline constexpr rsmi_status_t kSuccess = 0;            // RSMI_STATUS_SUCCESS
inline constexpr rsmi_status_t kNotInitialized = 8;     // RSMI_STATUS_INIT_ERROR
inline constexpr rsmi_status_t kNotFound = 10;          // RSMI_STATUS_NOT_FOUND
inline constexpr rsmi_status_t kInsufficientSize = 11;  // RSMI_STATUS_INSUFFICIENT_SIZE

inline constexpr rsmi_memory_type_t kVram = 0;         // RSMI_MEM_TYPE_VRAM
inline constexpr rsmi_memory_type_t kVisibleVram = 1;  // RSMI_MEM_TYPE_VIS_VRAM

struct rsmi_process_info_t {
  uint32_t process_id;
  uint32_t pasid;
  uint64_t vram_usage;  // bytes
  uint64_t sdma_usage;
  uint32_t cu_occupancy;
};

}  // namespace fracgpu::rocmsmi
