// Judges our CUDA driver declarations by the cuda.h that is found first on the include path. That
// it compiles is the verdict; see judge.h.
#include <stdint.h>
#include <stdlib.h>

#include "hooks/cuda/abi.h"
#include "tests/abi/judge.h"

#define ABI_FUNCTIONS "hooks/cuda/functions.inc"
#define ABI_TABLE "cuda_table.inc"

namespace fracgpu::cuda {
#define ABI_RESULT CUresult
#include "tests/abi/signatures.inc"
}  // namespace fracgpu::cuda

namespace around {
#include "tests/abi/absent_names.inc"

namespace vendor {
// Declares the symbols as they are exported, older generations included, without renaming.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#define ABI_VERSION CUDA_VERSION

namespace ours = fracgpu::cuda;
using namespace fracgpu::abi;

inline constexpr Since since[] = {
    {"cuGetProcAddress", 11030},    {"cuCtxCreate_v3", 11040}, {"cuDeviceGetUuid_v2", 11040},
    {"cuGetProcAddress_v2", 12000}, {"cuCtxCreate_v4", 12050},
};

#include "tests/abi/rows.inc"
}  // namespace vendor
}  // namespace around

int main() {
  char header[32];
  std::snprintf(header, sizeof header, "cuda.h %d.%d", CUDA_VERSION / 1000,
                CUDA_VERSION % 1000 / 10);
  return fracgpu::abi::report(header, around::vendor::rows);
}
