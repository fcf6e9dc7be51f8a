// Judges our HIP declarations by the hip_runtime_api.h that is found first on the include path.
// That it compiles is the verdict; see judge.h.
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hooks/hip/abi.h"
#include "tests/abi/judge.h"

#define ABI_FUNCTIONS "hooks/hip/functions.inc"
#define ABI_TABLE "hip_table.inc"

namespace fracgpu::hip {
#define ABI_RESULT hipError_t
#include "tests/abi/signatures.inc"
}  // namespace fracgpu::hip

namespace around {
#include "tests/abi/absent_names.inc"

namespace vendor {
// The interface of C: what C++ programs get on top brings half of the standard library along.
#define __HIP_PLATFORM_AMD__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wbuiltin-macro-redefined"
#pragma push_macro("__cplusplus")
#undef __cplusplus
#include <hip/hip_runtime_api.h>
#if __has_include(<hip/hip_deprecated.h>)
#include <hip/hip_deprecated.h>
#endif
#pragma pop_macro("__cplusplus")
#pragma GCC diagnostic pop
#define ABI_VERSION (HIP_VERSION_MAJOR * 100 + HIP_VERSION_MINOR)

namespace ours = fracgpu::hip;
using namespace fracgpu::abi;

#if HIP_VERSION_MAJOR < 6
static_assert(offsetof(hipDeviceProp_t, totalGlobalMem) == ours::kTotalMemoryR0000);
#else
// From 6.0 on the header gives the plain names to the new generation.
#undef hipGetDeviceProperties
hipError_t hipGetDeviceProperties(hipDeviceProp_tR0000* properties, int device);
static_assert(offsetof(hipDeviceProp_tR0000, totalGlobalMem) == ours::kTotalMemoryR0000);
static_assert(offsetof(hipDeviceProp_tR0600, totalGlobalMem) == ours::kTotalMemoryR0600);
#endif

inline constexpr std::array<Later, 0> later{};

#include "tests/abi/rows.inc"
}  // namespace vendor
}  // namespace around

int main() {
  return fracgpu::abi::report(
      "hip_runtime_api.h " ABI_TEXT(HIP_VERSION_MAJOR) "." ABI_TEXT(HIP_VERSION_MINOR),
      around::vendor::rows);
}
