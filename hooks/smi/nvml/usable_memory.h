// How much of a device's memory programs can be given.
#pragma once

#include "hooks/smi/nvml/library.h"

namespace fracgpu::nvml {

// Bytes; false where NVML does not tell, as of devices without a frame buffer. NVML's total may
// have the driver's reserve in it, which CUDA's has not (unslothai/unsloth-zoo PR 1053: 49,140 MiB
// and 48,509); only the second form of the call names it.
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
