// The CUDA driver's ABI as far as the hooks need it: types and the results they return.
//
// Our own declarations, so that one library serves CUDA 11 to 13 and builds without a toolkit.
// tests/abi compares every one of them with each version of cuda.h that the build finds.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fracgpu::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUdeviceptr_v1 = unsigned int;  // of the API before CUDA 3.2
using CUcontext = struct ContextHandle*;

struct CUuuid {
  char bytes[16];
};

inline constexpr CUresult kSuccess = 0;         // CUDA_SUCCESS
inline constexpr CUresult kOutOfMemory = 2;     // CUDA_ERROR_OUT_OF_MEMORY
inline constexpr CUresult kNotInitialized = 3;  // CUDA_ERROR_NOT_INITIALIZED

}  // namespace fracgpu::cuda
