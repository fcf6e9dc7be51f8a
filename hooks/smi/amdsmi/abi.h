// The part of libamd_smi's ABI that the hooks need: our own declarations, which tests/abi compares
// with amdsmi.h. Its structs grew from version to version, so they are bytes here. The hooks read
// and write numbers in them at the offsets that layout.h gives for the version.
#pragma once

#include <cstdint>

namespace fracgpu::amdsmi {

using amdsmi_status_t = int;
using amdsmi_processor_handle = void*;
using amdsmi_memory_type_t = int;

inline constexpr amdsmi_status_t kSuccess = 0;            // AMDSMI_STATUS_SUCCESS
inline constexpr amdsmi_status_t kOutOfResources = 15;    // AMDSMI_STATUS_OUT_OF_RESOURCES
inline constexpr amdsmi_status_t kNotFound = 31;          // AMDSMI_STATUS_NOT_FOUND
inline constexpr amdsmi_status_t kNotInitialized = 32;    // AMDSMI_STATUS_NOT_INIT
inline constexpr amdsmi_status_t kInsufficientSize = 41;  // AMDSMI_STATUS_INSUFFICIENT_SIZE

inline constexpr amdsmi_memory_type_t kVram = 0;         // AMDSMI_MEM_TYPE_VRAM
inline constexpr amdsmi_memory_type_t kVisibleVram = 1;  // AMDSMI_MEM_TYPE_VIS_VRAM

}  // namespace fracgpu::amdsmi
