// The real CUDA driver: one typed slot per function of functions.inc, and our hooks' prototypes.
//
// `real::cuMemAlloc_v2(…)` calls the driver. A slot is null before the driver is loaded and for
// functions it lacks; every hook therefore begins with `Hook`, which resolves the slots.
#pragma once

#include <atomic>

#include "hooks/cuda/abi.h"
#include "shim/real_function.h"
#include "shim/vendor_library.h"

namespace fracgpu::cuda {

extern VendorLibrary driver_library;

namespace slot {
#define FRACGPU_HOOKED(name, parameters) inline std::atomic<void*> name{nullptr};
#define FRACGPU_CALLED FRACGPU_HOOKED
#include "hooks/cuda/functions.inc"
#undef FRACGPU_HOOKED
#undef FRACGPU_CALLED
}  // namespace slot

namespace real {
#define FRACGPU_HOOKED(name, parameters) \
  inline constexpr RealFunction<CUresult parameters, kNotInitialized> name{slot::name};
#define FRACGPU_CALLED FRACGPU_HOOKED
#include "hooks/cuda/functions.inc"
#undef FRACGPU_HOOKED
#undef FRACGPU_CALLED
}  // namespace real

// The exported hooks: a definition that differs from the table does not compile.
extern "C" {
#define FRACGPU_HOOKED(name, parameters) [[gnu::visibility("default")]] CUresult name parameters;
#define FRACGPU_CALLED(name, parameters)
#include "hooks/cuda/functions.inc"
#undef FRACGPU_HOOKED
#undef FRACGPU_CALLED
}

}  // namespace fracgpu::cuda
