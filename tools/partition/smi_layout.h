// Offsets in bytes of the numbers that are read from amdsmi_accelerator_partition_profile_config_t.
// They were the same in all versions that have it; tests/abi checks them against the vendor's
// header.
#pragma once

#include <cstddef>

namespace fracgpu::tools::smi_layout {

inline constexpr size_t kProfileCount = 0;
inline constexpr size_t kFirstProfile = 2064;
inline constexpr size_t kProfileBytes = 1152;
inline constexpr size_t kMostProfiles = 32;
// In a profile.
inline constexpr size_t kMode = 0;  // amdsmi_accelerator_partition_type_t
inline constexpr size_t kPartitions = 4;
inline constexpr size_t kIndex = 12;

inline constexpr const char* kModes[] = {"", "SPX", "DPX", "TPX", "QPX", "CPX"};

}  // namespace fracgpu::tools::smi_layout
