// The key of an NVIDIA device in the ledger, from the UUID that CUDA reports.
#pragma once

#include "shim/base/text.h"

namespace fracgpu::cuda {

inline constexpr int kUuidBytes = 16;

// "GPU-" or "MIG-" and the UUID, as nvidia-smi prints them. With `is_instance`, the UUID is known
// to belong to a MIG instance. Otherwise this asks NVML what the UUID names.
Text<64> key_of_uuid(const void* uuid, bool is_instance = false);

}  // namespace fracgpu::cuda
