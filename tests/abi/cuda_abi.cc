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

inline constexpr auto later = std::to_array<Later>({
    {"CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT", 11030},
    {"CU_MEMPOOL_ATTR_USED_MEM_CURRENT", 11030},
    {"CUDA_MEM_ALLOC_NODE_PARAMS", 11040},
    {"CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT", 11040},
    {"CU_GRAPH_NODE_TYPE_MEM_ALLOC", 11040},
    {"CUDA_ARRAY_MEMORY_REQUIREMENTS", 11060},
    {"CUDA_ARRAY3D_DEFERRED_MAPPING", 11060},
    {"CUDA_GRAPH_INSTANTIATE_ERROR", 12000},
    {"CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD", 12000},
    {"CUDA_GRAPH_INSTANTIATE_PARAMS", 12000},
    {"CUkernel", 12000},
    {"CUlibrary", 12000},
    {"CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT", 12020},
    {"CU_MEM_HANDLE_TYPE_FABRIC", 12030},
    {"CUmemFabricHandle", 12030},
    {"CUgreenCtx", 12040},
    {"CU_MEM_ALLOCATION_TYPE_MANAGED", 13000},
});

#include "tests/abi/rows.inc"
}  // namespace vendor
}  // namespace around

int main() {
  char header[32];
  std::snprintf(header, sizeof header, "cuda.h %d.%d", CUDA_VERSION / 1000,
                CUDA_VERSION % 1000 / 10);
  return fracgpu::abi::report(header, around::vendor::rows);
}
