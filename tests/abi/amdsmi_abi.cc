// Judges our declarations of libamd_smi, and the layout of its version, by the amdsmi.h that is
// found first on the include path. That it compiles is the verdict; see judge.h.
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cstdint>

#include "hooks/smi/amd_view.h"
#include "hooks/smi/amdsmi/abi.h"
#include "hooks/smi/amdsmi/layout.h"
#include "tests/abi/judge.h"
#include "tools/partition/smi_layout.h"

#define ABI_FUNCTIONS "hooks/smi/amdsmi/functions.inc"
#define ABI_TABLE "amdsmi_table.inc"

namespace fracgpu::amdsmi {
#define ABI_RESULT amdsmi_status_t
#include "tests/abi/signatures.inc"
}  // namespace fracgpu::amdsmi

namespace around {
#include "tests/abi/absent_names.inc"

// What came and went; see layout_agrees().
struct amdsmi_kfd_info_t : fracgpu::abi::Absent {};
struct amdsmi_proc_info_by_pid_t : fracgpu::abi::Absent {};
struct amdsmi_accelerator_partition_profile_config_t : fracgpu::abi::Absent {};

namespace vendor {
#include <amd_smi/amdsmi.h>
#ifdef AMDSMI_LIB_VERSION_YEAR
#define ABI_VERSION AMDSMI_LIB_VERSION_YEAR
#else
#define ABI_VERSION AMDSMI_LIB_VERSION_MAJOR
#endif

namespace ours = fracgpu::amdsmi;
using namespace fracgpu::abi;

inline constexpr std::array<Later, 0> later{};

#include "tests/abi/rows.inc"

static_assert(ours::is_known(ABI_VERSION));
inline constexpr ours::ProcessLayout layout =
    sizeof(amdsmi_proc_info_t) == ours::kShortNames.bytes ? ours::kShortNames : ours::kLongNames;

template <typename Entry>
constexpr bool usage_agrees(const ours::UsageLayout& usage) {
  return offsetof(Entry, mem) == usage.memory &&
         offsetof(Entry, memory_usage.vram_mem) == usage.vram &&
         sizeof(Entry::mem) == sizeof(uint64_t);
}
static_assert(sizeof(amdsmi_proc_info_t) == layout.bytes);
static_assert(offsetof(amdsmi_proc_info_t, pid) == layout.pid);
static_assert(usage_agrees<amdsmi_proc_info_t>(layout.usage));

// The size has changed its name.
template <typename Info>
constexpr size_t vram_size_offset() {
  if constexpr (requires(Info info) { info.vram_size_mb; }) {
    return offsetof(Info, vram_size_mb);
  } else {
    return offsetof(Info, vram_size);
  }
}
static_assert(vram_size_offset<amdsmi_vram_info_t>() == ours::vram_info_size(ABI_VERSION));
static_assert(offsetof(amdsmi_vram_usage_t, vram_total) == 0);
static_assert(offsetof(amdsmi_vram_usage_t, vram_used) == 4);

using Compute = fracgpu::kfd::ComputeProcess;
static_assert(sizeof(amdsmi_process_info_t) == sizeof(Compute));
static_assert(offsetof(amdsmi_process_info_t, vram_usage) == offsetof(Compute, vram_usage));
static_assert(offsetof(amdsmi_version_t, build) < 256);

template <typename Kfd>
constexpr bool kfd_agrees() {
  if constexpr (!is_absent<Kfd>) {
    static_assert(offsetof(Kfd, kfd_id) == 0 && sizeof(Kfd::kfd_id) == 8 && sizeof(Kfd) < 256);
  }
  return true;
}
static_assert(kfd_agrees<amdsmi_kfd_info_t>());

template <typename ByPid>
constexpr bool by_pid_agrees() {
  if constexpr (!is_absent<ByPid>) {
    using Entry = std::remove_extent_t<decltype(ByPid::gpus)>;
    static_assert(sizeof(ByPid) == ours::kByPidBytes && offsetof(ByPid, pid) == 0);
    static_assert(offsetof(ByPid, num_gpus) == ours::kByPidCount);
    static_assert(offsetof(ByPid, gpus) == ours::kByPidFirst);
    static_assert(sizeof(ByPid::gpus) == ours::kByPidDevices * sizeof(Entry));
    static_assert(sizeof(Entry) == ours::kByPidEntryBytes && offsetof(Entry, gpu_index) == 0);
    static_assert(usage_agrees<Entry>(ours::kByPidUsage));
  }
  return true;
}
static_assert(by_pid_agrees<amdsmi_proc_info_by_pid_t>());

template <typename Config>
constexpr bool profiles_agree() {
  namespace layout = fracgpu::tools::smi_layout;
  if constexpr (!is_absent<Config>) {
    using Profile = std::remove_extent_t<decltype(Config::profiles)>;
    static_assert(offsetof(Config, num_profiles) == layout::kProfileCount);
    static_assert(offsetof(Config, profiles) == layout::kFirstProfile);
    static_assert(sizeof(Profile) == layout::kProfileBytes);
    static_assert(sizeof(Config::profiles) == layout::kMostProfiles * sizeof(Profile));
    static_assert(offsetof(Profile, profile_type) == layout::kMode);
    static_assert(offsetof(Profile, num_partitions) == layout::kPartitions);
    static_assert(offsetof(Profile, profile_index) == layout::kIndex);
  }
  return true;
}
static_assert(profiles_agree<amdsmi_accelerator_partition_profile_config_t>());
}  // namespace vendor
}  // namespace around

int main() {
  char header[48];
  std::snprintf(header, sizeof header, "amdsmi.h, version %d", ABI_VERSION);
  return fracgpu::abi::report(header, around::vendor::rows);
}
