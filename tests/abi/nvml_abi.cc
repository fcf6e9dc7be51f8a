// Judges our NVML declarations by the nvml.h that is found first on the include path. That it
// compiles is the verdict; see judge.h.
#include <stdint.h>
#include <stdlib.h>

#include "hooks/smi/nvml/abi.h"
#include "tests/abi/judge.h"

#define ABI_FUNCTIONS "hooks/smi/nvml/functions.inc"
#define ABI_TABLE "nvml_table.inc"

namespace fracgpu::nvml {
#define ABI_RESULT nvmlReturn_t
#include "tests/abi/signatures.inc"
}  // namespace fracgpu::nvml

namespace around {
#include "tests/abi/absent_names.inc"

namespace vendor {
// Declares the symbols as they are exported, older generations included, without renaming.
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#define ABI_VERSION NVML_API_VERSION

namespace ours = fracgpu::nvml;
using namespace fracgpu::abi;

// Came during the life of version 11.
inline constexpr auto later = std::to_array<Later>({
    {"nvmlMemory_v2_t", 12},
    {"nvmlProcessDetail_v1_t", 12},
    {"nvmlProcessDetailList_v1_t", 12},
    {"nvmlConfComputeMemSizeInfo_t", 13},
    {"nvmlAccountingStats_v2_t", 14},  // came during the life of version 13
});

#include "tests/abi/rows.inc"
}  // namespace vendor
}  // namespace around

int main() {
  return fracgpu::abi::report("nvml.h " NVML_API_VERSION_STR, around::vendor::rows);
}
