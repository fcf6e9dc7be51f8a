// Judges our declarations of librocm_smi64 by the rocm_smi.h that is found first on the include
// path. That it compiles is the verdict; see judge.h.
#include <linux/types.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>

#include <cstdint>

#include "hooks/smi/amd_view.h"
#include "hooks/smi/rocmsmi/abi.h"
#include "tests/abi/judge.h"

#define ABI_FUNCTIONS "hooks/smi/rocmsmi/functions.inc"
#define ABI_TABLE "rocmsmi_table.inc"

namespace fracgpu::rocmsmi {
#define ABI_RESULT rsmi_status_t
#include "tests/abi/signatures.inc"
}  // namespace fracgpu::rocmsmi

namespace around {
#include "tests/abi/absent_names.inc"

namespace vendor {
#include <rocm_smi/rocm_smi.h>
// Its version is told by the library alone; this came with 6.1.
#ifdef RSMI_MAX_NUM_CLKS
#define ABI_VERSION 6
#else
#define ABI_VERSION 5
#endif

namespace ours = fracgpu::rocmsmi;
using namespace fracgpu::abi;

inline constexpr std::array<Later, 0> later{};

#include "tests/abi/rows.inc"

// The entries of lists are edited as those that both libraries have.
static_assert(sizeof(rsmi_process_info_t) == sizeof(fracgpu::kfd::ComputeProcess));
static_assert(offsetof(rsmi_process_info_t, process_id) ==
              offsetof(fracgpu::kfd::ComputeProcess, process_id));
static_assert(offsetof(rsmi_process_info_t, vram_usage) ==
              offsetof(fracgpu::kfd::ComputeProcess, vram_usage));
}  // namespace vendor
}  // namespace around

int main() {
  return fracgpu::abi::report("rocm_smi.h, 5 or 6 and later: " ABI_TEXT(ABI_VERSION),
                              around::vendor::rows);
}
