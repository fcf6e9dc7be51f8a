// The part of the HIP runtime's ABI that the hooks need: our own declarations. Every build compares
// them with each hip_runtime_api.h that it finds (tests/abi).
//
// HIP 5.2 to 7.2 differ in layouts, so the hooks never read those (hipMemAllocationProp moved its
// fields between 5.2 and 5.7). They also differ in hipDeviceProp_t. This file has the offsets that
// the hooks write to in both generations of it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fracgpu::hip {

using hipError_t = int;
inline constexpr hipError_t kSuccess = 0;         // hipSuccess
inline constexpr hipError_t kOutOfMemory = 2;     // hipErrorOutOfMemory
inline constexpr hipError_t kNotInitialized = 3;  // hipErrorNotInitialized

// Flag of hipExtMallocWithFlags: a few bytes of host memory.
inline constexpr unsigned kMallocSignal = 2;  // hipMallocSignalMemory

struct hipExtent {
  size_t width;
  size_t height;
  size_t depth;
};
struct hipIpcMemHandle_t {
  char reserved[64];
};
struct hipUUID {
  char bytes[16];
};

// The offset of totalGlobalMem (size_t), in bytes, in each generation of hipDeviceProp_t: the one
// up to 5.7, which later releases call R0000, and that of 6.0 and later, R0600.
inline constexpr size_t kTotalMemoryR0000 = 256;
inline constexpr size_t kTotalMemoryR0600 = 288;

}  // namespace fracgpu::hip
