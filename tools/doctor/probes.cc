// The probes that ask no vendor's library about doors: whether this library was preloaded, and
// which GPUs there are, which driver they have and who holds memory on them.
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <fstream>

#include "hooks/kfd/truth.h"
#include "hooks/nvml/abi.h"
#include "tools/doctor/mapped_library.h"
#include "tools/doctor/probe.h"
#include "tools/doctor/vendor_probes.h"
#include "tools/gpus.h"

namespace fracgpu::tools {
namespace {

using nlohmann::json;

template <typename Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

// The PIDs and bytes in one of NVML's lists; nothing where the driver has none of that name.
template <typename Entry>
bool list_processes(void* library, const char* name, nvml::nvmlDevice_t device, json& list) {
  using namespace nvml;
  const auto read = find<nvmlReturn_t(nvmlDevice_t, unsigned*, Entry*)>(library, name);
  if (read == nullptr) return false;
  std::vector<Entry> entries(64);
  for (int attempt = 0; attempt < 4; ++attempt) {
    auto count = static_cast<unsigned>(entries.size());
    const nvmlReturn_t result = read(device, &count, entries.data());
    if (result == kInsufficientSize) {
      entries.resize(std::max<size_t>(count, entries.size()) * 2);
      continue;
    }
    if (result != kSuccess) return true;
    for (unsigned i = 0; i < count && i < entries.size(); ++i) {
      json entry = {{"pid", entries[i].pid}, {"used", nullptr}};
      if (entries[i].usedGpuMemory != kNotAvailable) entry["used"] = entries[i].usedGpuMemory;
      list.push_back(std::move(entry));
    }
    return true;
  }
  return true;
}

json nvidia_processes(void* library, const Gpu& gpu) {
  using namespace nvml;
  json list = json::array();
  const auto handle_of =
      find<nvmlReturn_t(const char*, nvmlDevice_t*)>(library, "nvmlDeviceGetHandleByUUID");
  nvmlDevice_t device = nullptr;
  if (handle_of == nullptr || handle_of(gpu.key.c_str(), &device) != kSuccess) return list;
  for (const char* const kind : {"Compute", "Graphics"}) {
    const std::string name = fmt::format("nvmlDeviceGet{}RunningProcesses", kind);
    list_processes<nvmlProcessInfo_v2_t>(library, (name + "_v3").c_str(), device, list) ||
        list_processes<nvmlProcessInfo_v2_t>(library, (name + "_v2").c_str(), device, list) ||
        list_processes<nvmlProcessInfo_v1_t>(library, name.c_str(), device, list);
  }
  return list;
}

// KFD has a folder for each process, by its host PID.
json amd_processes(const Gpu& gpu) {
  json list = json::array();
  DIR* const folder = opendir("/sys/class/kfd/kfd/proc");
  if (folder == nullptr) return list;
  while (const dirent* entry = readdir(folder)) {
    const auto pid = static_cast<uint32_t>(strtoul(entry->d_name, nullptr, 10));
    uint64_t bytes = 0;
    if (pid != 0 && kfd::bytes_of(pid, gpu.key.c_str(), bytes) && bytes != 0) {
      list.push_back({{"pid", pid}, {"used", bytes}});
    }
  }
  closedir(folder);
  return list;
}

int probe_gpus(ProbeTeller& teller) {
  teller.step("listing the GPUs (nvmlInit_v2, /sys/class/kfd)");
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
  json gpus = json::array();
  for (const Gpu& gpu : list_gpus()) {
    teller.step("listing the processes on " + gpu.label());
    const bool amd = gpu.vendor == Gpu::Vendor::amd;
    gpus.push_back({{"vendor", amd ? "amd" : "nvidia"},
                    {"index", gpu.index},
                    {"key", gpu.key},
                    {"domain", gpu.bus_id.domain},
                    {"bus", gpu.bus_id.bus},
                    {"device", gpu.bus_id.device},
                    {"function", gpu.bus_id.function},
                    {"partition", gpu.bus_id.partition},
                    {"physical", gpu.physical},
                    {"processes", amd ? amd_processes(gpu) : nvidia_processes(library, gpu)}});
  }
  teller.tell("gpus", gpus);
  const auto version_of = library == nullptr ? nullptr
                                             : find<nvml::nvmlReturn_t(char*, unsigned)>(
                                                   library, "nvmlSystemGetDriverVersion");
  char version[96] = "";
  if (version_of != nullptr && version_of(version, sizeof version) == nvml::kSuccess) {
    teller.tell("nvidia_driver", version);
  }
  std::ifstream amdgpu("/sys/module/amdgpu/version");
  if (std::string text; std::getline(amdgpu, text)) teller.tell("amdgpu_driver", text);
  return 0;
}

}  // namespace

int be_probe(const std::string& name) {
  ProbeTeller teller;
  if (name == "loaded") {
    teller.tell("library", mapped_library());
    return 0;
  }
  if (name == "gpus") return probe_gpus(teller);
  return probe_vendor(name, teller);
}

}  // namespace fracgpu::tools
