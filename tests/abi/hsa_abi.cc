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
#define ABI_VERSION HSA_AMD_INTERFACE_VERSION_MINOR
#else
#define ABI_VERSION -1
#endif

namespace ours = fracgpu::hsa;
using namespace fracgpu::abi;

// By the minor version of the extension's interface, or later than any that was judged.
inline constexpr Since since[] = {
    {"HSA_AMD_AGENT_INFO_MEMORY_AVAIL", 1},
    {"hsa_amd_portable_export_dmabuf", 1},
    {"hsa_amd_vmem_alloc_handle_t", 3},
    {"hsa_amd_vmem_handle_create", 3},
    {"hsa_amd_vmem_handle_release", 3},
    {"hsa_amd_vmem_map", 3},
    {"hsa_amd_vmem_unmap", 3},
    {"hsa_amd_vmem_retain_alloc_handle", 3},
    {"hsa_amd_vmem_export_shareable_handle", 3},
    {"hsa_amd_vmem_import_shareable_handle", 3},
    {"hsa_amd_vmem_get_alloc_properties_from_handle", 3},
};

#include "tests/abi/rows.inc"
}  // namespace vendor
}  // namespace around

int main() {
  char header[48];
  std::snprintf(header, sizeof header, "hsa_ext_amd.h, interface 1.%d", ABI_VERSION);
  return fracgpu::abi::report(header, around::vendor::rows);
}
