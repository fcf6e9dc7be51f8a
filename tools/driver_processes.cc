// Asks NVML and KFD; see driver_processes.h.
#include "tools/driver_processes.h"

#include <dirent.h>

#include <charconv>
#include <map>

#include "hooks/kfd/truth.h"
#include "hooks/nvml/abi.h"
#include "hooks/nvml/driver_version.h"
#include "shim/identity.h"
#include "shim/whole_list.h"
#include "tools/nvml_library.h"

namespace fracgpu::tools {
namespace {

using Sums = std::map<uint32_t, std::optional<uint64_t>>;

// Whether PIDs in NVML's lists are those that this process sees.
bool nvml_lists_our_pids() {
  using namespace nvml;
  if (in_host_pid_namespace()) return true;
  const auto version_of =
      NvmlLibrary::get().find<nvmlReturn_t(char*, unsigned)>("nvmlSystemGetDriverVersion");
  char text[80] = "";
  return version_of != nullptr && version_of(text, sizeof text) == kSuccess &&
         lists_own_namespace(version_in(text));
}

// Adds NVML's list of this name, which may also have programs that another one has: `sums` keeps
// the larger number. False when NVML does not tell.
bool add_list(const char* name, nvml::nvmlDevice_t device, Sums& sums) {
  using namespace nvml;
  // Their entries are the same in all drivers; those of the third generation are not.
  using Function = nvmlReturn_t(nvmlDevice_t, unsigned*, nvmlProcessInfo_v2_t*);
  const auto list = NvmlLibrary::get().find<Function>(name);
  if (list == nullptr) return false;
  using Info = nvmlProcessInfo_v2_t;
  WholeList all(sizeof(Info));
  const auto read = [&](void* to, unsigned* count) {
    return list(device, count, static_cast<Info*>(to));
  };
  if (all.read_all(kInsufficientSize, read) != kSuccess) return false;
  Sums mine;
  for (uint32_t i = 0; i < all.count(); ++i) {
    const Info& info = all.entries<Info>()[i];
    auto& sum = mine[info.pid];
    if (info.usedGpuMemory != kNotAvailable) sum = sum.value_or(0) + info.usedGpuMemory;
  }
  for (const auto& [pid, bytes] : mine) sums[pid] = std::max(sums[pid], bytes);
  return true;
}

bool add_nvidia(const Gpu& gpu, Sums& sums) {
  using namespace nvml;
  const auto handle_of = NvmlLibrary::get().find<nvmlReturn_t(const char*, nvmlDevice_t*)>(
      "nvmlDeviceGetHandleByUUID");
  nvmlDevice_t device = nullptr;
  if (handle_of == nullptr || !nvml_lists_our_pids() ||
      handle_of(gpu.key.c_str(), &device) != kSuccess) {
    return false;
  }
  const bool known = add_list("nvmlDeviceGetComputeRunningProcesses_v2", device, sums);
  add_list("nvmlDeviceGetGraphicsRunningProcesses_v2", device, sums);
  return known;
}

bool add_amd(const Gpu& gpu, Sums& sums) {
  DIR* const list = in_host_pid_namespace() ? opendir("/sys/class/kfd/kfd/proc") : nullptr;
  if (list == nullptr) return false;
  while (const dirent* entry = readdir(list)) {
    const std::string_view name = entry->d_name;
    uint32_t pid = 0;
    uint64_t bytes = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || *end != '\0') continue;
    if (kfd::bytes_of(pid, gpu.key.c_str(), bytes) && bytes > 0) sums[pid] = bytes;
  }
  closedir(list);
  return true;
}

}  // namespace

std::optional<std::vector<DriverProcess>> driver_processes(const Gpu& gpu) {
  Sums sums;
  const bool known = gpu.vendor == Gpu::Vendor::nvidia ? add_nvidia(gpu, sums) : add_amd(gpu, sums);
  if (!known) return std::nullopt;
  std::vector<DriverProcess> processes;
  for (const auto& [pid, bytes] : sums) {
    processes.push_back({pid, process_of_own_namespace(pid), bytes});
  }
  return processes;
}

}  // namespace fracgpu::tools
