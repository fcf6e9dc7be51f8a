// Asks NVML and KFD; see driver_processes.h.
#include "tools/machine/driver_processes.h"

#include <dirent.h>

#include <charconv>

#include "hooks/smi/nvml/abi.h"
#include "hooks/smi/nvml/driver_version.h"
#include "hooks/usage/kfd_usage.h"
#include "shim/config/identity.h"
#include "shim/vendor/process_list.h"
#include "tools/machine/nvml_library.h"

namespace fracgpu::tools {
namespace {

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
template <typename Info>
bool add_list(const char* name, nvml::nvmlDevice_t device, DriverList& sums) {
  using namespace nvml;
  using Function = nvmlReturn_t(nvmlDevice_t, unsigned*, Info*);
  const auto list = NvmlLibrary::get().find<Function>(name);
  if (list == nullptr) return false;
  ProcessList all(sizeof(Info));
  const auto read = [&](void* to, unsigned* count) {
    return list(device, count, static_cast<Info*>(to));
  };
  if (all.read_all(kInsufficientSize, read) != kSuccess) return false;
  DriverList mine;
  for (uint32_t i = 0; i < all.count(); ++i) {
    const Info& info = all.entries<Info>()[i];
    auto& sum = mine[info.pid];
    if (info.usedGpuMemory != kNotAvailable) sum = sum.value_or(0) + info.usedGpuMemory;
  }
  for (const auto& [pid, bytes] : mine) sums[pid] = std::max(sums[pid], bytes);
  return true;
}

bool add_nvidia(const Gpu& gpu, DriverList& sums) {
  using namespace nvml;
  const auto handle_of = NvmlLibrary::get().find<nvmlReturn_t(const char*, nvmlDevice_t*)>(
      "nvmlDeviceGetHandleByUUID");
  nvmlDevice_t device = nullptr;
  if (handle_of == nullptr || handle_of(gpu.key.c_str(), &device) != kSuccess) return false;
  // The second form is the same in all drivers that have it; the third is not.
  const auto add = [&](const std::string& name) {
    return add_list<nvmlProcessInfo_v2_t>((name + "_v2").c_str(), device, sums) ||
           add_list<nvmlProcessInfo_v1_t>(name.c_str(), device, sums);
  };
  const bool known = add("nvmlDeviceGetComputeRunningProcesses");
  add("nvmlDeviceGetGraphicsRunningProcesses");
  return known;
}

bool add_amd(const Gpu& gpu, DriverList& sums) {
  DIR* const list = opendir("/sys/class/kfd/kfd/proc");
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

std::optional<DriverList> driver_list(const Gpu& gpu) {
  DriverList list;
  const bool known = gpu.vendor == Gpu::Vendor::nvidia ? add_nvidia(gpu, list) : add_amd(gpu, list);
  return known ? std::optional(list) : std::nullopt;
}

std::optional<std::vector<DriverProcess>> driver_processes(const Gpu& gpu) {
  const bool ours =
      gpu.vendor == Gpu::Vendor::nvidia ? nvml_lists_our_pids() : in_host_pid_namespace();
  const auto list = ours ? driver_list(gpu) : std::nullopt;
  if (!list) return std::nullopt;
  std::vector<DriverProcess> processes;
  for (const auto& [pid, bytes] : *list) {
    processes.push_back({pid, process_of_own_namespace(pid), bytes});
  }
  return processes;
}

}  // namespace fracgpu::tools
