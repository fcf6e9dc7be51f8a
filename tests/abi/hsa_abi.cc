// Judges our HSA declarations by the hsa_ext_amd.h that is found first on the include path. That it
// compiles is the verdict; see judge.h.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "hooks/hsa/abi.h"
#include "tests/abi/judge.h"

#define ABI_FUNCTIONS "hooks/hsa/functions.inc"
#define ABI_TABLE "hsa_table.inc"

namespace fracgpu::hsa {
#define ABI_RESULT hsa_status_t
#include "tests/abi/signatures.inc"
}  // namespace fracgpu::hsa

namespace around {
#include "tests/abi/absent_names.inc"

namespace vendor {
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
// Before 5.5 the extension's interface had no version of its own.
#ifdef HSA_AMD_INTERFACE_VERSION_MINOR
#define ABI_VERSION (HSA_AMD_INTERFACE_VERSION_MAJOR * 100 + HSA_AMD_INTERFACE_VERSION_MINOR)
#else
#define ABI_VERSION 0
#endif

namespace ours = fracgpu::hsa;
using namespace fracgpu::abi;

inline constexpr auto later = std::to_array<Later>({
    {"HSA_AMD_AGENT_INFO_MEMORY_AVAIL", 101},
    {"HSA_AMD_AGENT_INFO_DRIVER_UID", 104},
    {"hsa_amd_vmem_alloc_handle_t", 104},
    {"hsa_fabric_handle_t", 125},
    {"HSA_AMD_QUEUE_ENGINE_COMPUTE", 126},
    {"hsa_amd_queue_create_desc_t", 126},
});

#include "tests/abi/rows.inc"
}  // namespace vendor
}  // namespace around

int main() {
  char header[48];
  std::snprintf(header, sizeof header, "hsa_ext_amd.h, interface %d.%d", ABI_VERSION / 100,
                ABI_VERSION % 100);
  return fracgpu::abi::report(header, around::vendor::rows);
}
