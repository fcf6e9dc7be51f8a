// Queries NVML and KFD; see driver_processes.h.
#include "tools/machine/driver_processes.h"

#include <dirent.h>

#include <charconv>

#include "hooks/smi/nvml/abi.h"
#include "hooks/smi/nvml/list_meaning.h"
#include "hooks/usage/kfd_usage.h"
#include "shim/config/identity.h"
#include "shim/vendor/process_list.h"
#include "tools/machine/nvml_library.h"

namespace fracgpu::tools {
namespace {

nvml::ListMeaning meaning_here() {
  using namespace nvml;
  const auto version_of =
      NvmlLibrary::get().find<nvmlReturn_t(char*, unsigned)>("nvmlSystemGetDriverVersion");
  char text[80] = "";
  const bool known = version_of != nullptr && version_of(text, sizeof text) == kSuccess;
  return meaning_of_lists(known ? version_in(text) : DriverVersion());
}

// The process that a listed number stands for; the number itself if the process is not known.
uint32_t owner_of(uint32_t pid, const nvml::ListMeaning& meaning) {
  if (!meaning.threads) return pid;
  const uint32_t owner = process_of_thread(pid);
  return owner != 0 ? owner : pid;
}

// Adds NVML's list of this name. Another list may contain the same programs, so `sums` keeps the
// larger number. False if NVML does not return the list.
template <typename Info>
bool add_list(const char* name, nvml::nvmlDevice_t device, const nvml::ListMeaning& meaning,
              DriverList& sums) {
  using namespace nvml;
  using Function = nvmlReturn_t(nvmlDevice_t, unsigned*, Info*);
  const auto list = NvmlLibrary::get().find<Function>(name);
  if (list == nullptr) return false;
  ProcessList all(sizeof(Info));
  const auto read = [&](void* to, unsigned* count) {
    return list(device, count, static_cast<Info*>(to));
  };
  if (all.read_all(kInsufficientSize, read) != kSuccess) return false;
  struct Mine {
    ListedBytes listed;
    bool told = true;
  };
  std::map<uint32_t, Mine> mine;
  for (uint32_t i = 0; i < all.count(); ++i) {
    const Info& info = all.entries<Info>()[i];
    ListedBytes::Entry entry{.pid = info.pid, .bytes = info.usedGpuMemory};
    if constexpr (requires { info.gpuInstanceId; }) {
      entry.gpu_instance = info.gpuInstanceId;
      entry.compute_instance = info.computeInstanceId;
    }
    const uint32_t owner = owner_of(info.pid, meaning);
    Mine& of_owner = mine[owner];
    of_owner.told = of_owner.told && info.usedGpuMemory != kNotAvailable;
    of_owner.listed.add(entry, owner == info.pid, meaning);
  }
  for (const auto& [pid, of_owner] : mine) {
    uint64_t bytes = 0;
    std::optional<uint64_t>& sum = sums[pid];
    if (of_owner.told && of_owner.listed.sum(bytes)) sum = std::max(sum, std::optional(bytes));
  }
  return true;
}

bool add_nvidia(const Gpu& gpu, DriverList& sums) {
  using namespace nvml;
  const auto handle_of = NvmlLibrary::get().find<nvmlReturn_t(const char*, nvmlDevice_t*)>(
      "nvmlDeviceGetHandleByUUID");
  nvmlDevice_t device = nullptr;
  if (handle_of == nullptr || handle_of(gpu.key.c_str(), &device) != kSuccess) return false;
  const ListMeaning meaning = meaning_here();
  // The second form is the same in all drivers that have it; the third is not.
  const auto add = [&](const std::string& name) {
    return add_list<nvmlProcessInfo_v2_t>((name + "_v2").c_str(), device, meaning, sums) ||
           add_list<nvmlProcessInfo_v1_t>(name.c_str(), device, meaning, sums);
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
  const bool ours = gpu.vendor == Gpu::Vendor::nvidia
                        ? meaning_here().pids == nvml::ListMeaning::Pids::callers
                        : in_host_pid_namespace();
  const auto list = ours ? driver_list(gpu) : std::nullopt;
  if (!list) return std::nullopt;
  std::vector<DriverProcess> processes;
  for (const auto& [pid, bytes] : *list) {
    processes.push_back({pid, process_of_own_namespace(pid), bytes});
  }
  return processes;
}

}  // namespace fracgpu::tools
