// The real HSA runtime: one typed slot per function of functions.inc, and our hooks' prototypes.
#pragma once

#include <atomic>

#include "hooks/hsa/abi.h"
#include "shim/vendor/real_function.h"
#include "shim/vendor/vendor_library.h"

namespace fracgpu::hsa {

extern VendorLibrary runtime_library;

#define FRACGPU_TABLE "hooks/hsa/functions.inc"
#define FRACGPU_RESULT hsa_status_t
#define FRACGPU_MISSING kNotInitialized
#include "shim/vendor/function_prototypes.inc"

}  // namespace fracgpu::hsa
