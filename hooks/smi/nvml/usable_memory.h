// The part of a device's memory that programs can get.
#pragma once

#include "hooks/smi/nvml/library.h"

namespace fracgpu::nvml {

// In bytes. False if NVML does not report it, as for devices without a frame buffer. NVML's total
// may include the driver's reserve, which CUDA's total does not include (unslothai/unsloth-zoo PR
// 1053: 49,140 MiB and 48,509). Only the second form of the call reports the reserve.
inline bool usable_bytes(nvmlDevice_t device, uint64_t& bytes) {
  nvmlMemory_v2_t now = {};
  now.version = kMemoryV2;
  if (real::nvmlDeviceGetMemoryInfo_v2.exists() &&
      real::nvmlDeviceGetMemoryInfo_v2(device, &now) == kSuccess && now.reserved < now.total) {
    bytes = now.total - now.reserved;
    return true;
  }
  nvmlMemory_t memory = {};
  if (real::nvmlDeviceGetMemoryInfo(device, &memory) != kSuccess) return false;
  bytes = memory.total;
  return true;
}

}  // namespace fracgpu::nvml
