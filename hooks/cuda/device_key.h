// The key of an NVIDIA device in the ledger, from the UUID that CUDA or OpenCL reports.
#pragma once

#include "shim/base/text.h"

namespace fracgpu::cuda {

inline constexpr int kUuidBytes = 16;

// "GPU-" or "MIG-" and the UUID, as nvidia-smi prints them. `is_instance`: it is known to be a MIG
// instance's; otherwise NVML is asked what the UUID names.
Text<64> key_of_uuid(const void* uuid, bool is_instance = false);

}  // namespace fracgpu::cuda
