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
    {"cuGetProcAddress", 11030},
    {"CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT", 11030},
    {"CU_MEMPOOL_ATTR_USED_MEM_CURRENT", 11030},
    {"cuCtxCreate_v3", 11040},
    {"cuDeviceGetUuid_v2", 11040},
    {"cuDeviceGetGraphMemAttribute", 11040},
    {"cuDeviceGraphMemTrim", 11040},
    {"cuGraphInstantiateWithFlags", 11040},
    {"cuGraphMemAllocNodeGetParams", 11040},
    {"CUDA_MEM_ALLOC_NODE_PARAMS", 11040},
    {"CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT", 11040},
    {"CU_GRAPH_NODE_TYPE_MEM_ALLOC", 11040},
    {"cuArrayGetMemoryRequirements", 11060},
    {"cuMipmappedArrayGetMemoryRequirements", 11060},
    {"CUDA_ARRAY_MEMORY_REQUIREMENTS", 11060},
    {"CUDA_ARRAY3D_DEFERRED_MAPPING", 11060},
    {"cuGetProcAddress_v2", 12000},
    {"cuGraphExecUpdate_v2", 12000},
    {"cuGraphInstantiateWithParams", 12000},
    {"cuGraphInstantiateWithParams_ptsz", 12000},
    {"cuLibraryGetGlobal", 12000},
    {"cuLibraryGetModule", 12000},
    {"cuLibraryUnload", 12000},
    {"CUlibrary", 12000},
    {"CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT", 12020},
    {"CU_MEM_HANDLE_TYPE_FABRIC", 12030},
    {"CUmemFabricHandle", 12030},
    {"cuMulticastCreate", 12010},
    {"cuMulticastBindMem", 12010},
    {"cuMulticastBindAddr", 12010},
    {"cuMulticastUnbind", 12010},
    // In headers of their own, which need those of OpenGL and VDPAU.
    {"cuGLCtxCreate", 1 << 30},
    {"cuGLCtxCreate_v2", 1 << 30},
    {"cuVDPAUCtxCreate", 1 << 30},
    {"cuVDPAUCtxCreate_v2", 1 << 30},
    {"cuGreenCtxCreate", 12040},
    {"cuGreenCtxDestroy", 12040},
    {"CUgreenCtx", 12040},
    {"cuCtxCreate_v4", 12050},
    {"cuMemGetDefaultMemPool", 13000},
    {"cuMemGetMemPool", 13000},
    {"CU_MEM_ALLOCATION_TYPE_MANAGED", 13000},
    {"cuMulticastBindMem_v2", 13010},
    {"cuMulticastBindAddr_v2", 13010},
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
