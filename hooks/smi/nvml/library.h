// The real NVML: one typed slot per function of functions.inc, and our hooks' prototypes.
//
// `real::nvmlInit_v2()` calls NVML. A slot is null until the library is loaded, and for functions
// that it lacks. `library.resolve()` fills the slots.
#pragma once

#include <atomic>

#include "hooks/smi/nvml/abi.h"
#include "shim/vendor/real_function.h"
#include "shim/vendor/vendor_library.h"

namespace fracgpu::nvml {

extern VendorLibrary library;

#define FRACGPU_TABLE "hooks/smi/nvml/functions.inc"
#define FRACGPU_RESULT nvmlReturn_t
#define FRACGPU_MISSING kUninitialized
#include "shim/vendor/function_prototypes.inc"

}  // namespace fracgpu::nvml
