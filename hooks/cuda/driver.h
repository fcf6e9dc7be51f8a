// The real CUDA driver: one typed slot per function of functions.inc, and our hooks' prototypes.
//
// `real::cuMemAlloc_v2(…)` calls the driver. A slot is null until the driver is loaded, and for
// functions that the driver lacks. So every hook begins with `Hook`, which resolves the slots.
#pragma once

#include <atomic>

#include "hooks/cuda/abi.h"
#include "shim/vendor/real_function.h"
#include "shim/vendor/vendor_library.h"

namespace fracgpu::cuda {

extern VendorLibrary driver_library;

#define FRACGPU_TABLE "hooks/cuda/functions.inc"
#define FRACGPU_RESULT CUresult
#define FRACGPU_MISSING kNotInitialized
#include "shim/vendor/function_prototypes.inc"

}  // namespace fracgpu::cuda
