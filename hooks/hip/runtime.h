// The real HIP runtime: one typed slot per function of functions.inc, and our hooks' prototypes.
#pragma once

#include <atomic>

#include "hooks/hip/abi.h"
#include "shim/vendor/real_function.h"
#include "shim/vendor/vendor_library.h"

namespace fracgpu::hip {

extern VendorLibrary runtime_library;

#define FRACGPU_TABLE "hooks/hip/functions.inc"
#define FRACGPU_RESULT hipError_t
#define FRACGPU_MISSING kNotInitialized
#include "shim/vendor/function_prototypes.inc"

}  // namespace fracgpu::hip
