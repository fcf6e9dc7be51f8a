// The real NVML: one typed slot per function of functions.inc, and our hooks' prototypes.
//
// `real::nvmlInit_v2()` calls NVML. A slot is null before the library is loaded and for functions
// it lacks; `library.resolve()` fills the slots.
#pragma once

#include <atomic>

#include "hooks/nvml/abi.h"
#include "shim/real_function.h"
#include "shim/vendor_library.h"

namespace fracgpu::nvml {

extern VendorLibrary library;

namespace slot {
#define FRACGPU_HOOKED(name, parameters) inline std::atomic<void*> name{nullptr};
#define FRACGPU_CALLED FRACGPU_HOOKED
#include "hooks/nvml/functions.inc"
#undef FRACGPU_HOOKED
#undef FRACGPU_CALLED
}  // namespace slot

namespace real {
#define FRACGPU_HOOKED(name, parameters) \
  inline constexpr RealFunction<nvmlReturn_t parameters, kUninitialized> name{slot::name};
#define FRACGPU_CALLED FRACGPU_HOOKED
#include "hooks/nvml/functions.inc"
#undef FRACGPU_HOOKED
#undef FRACGPU_CALLED
}  // namespace real

// The exported hooks: a definition that differs from the table does not compile.
extern "C" {
#define FRACGPU_HOOKED(name, parameters) \
  [[gnu::visibility("default")]] nvmlReturn_t name parameters;
#define FRACGPU_CALLED(name, parameters)
#include "hooks/nvml/functions.inc"
#undef FRACGPU_HOOKED
#undef FRACGPU_CALLED
}

}  // namespace fracgpu::nvml
