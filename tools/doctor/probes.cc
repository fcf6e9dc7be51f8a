// The probes that look up no vendor functions: whether this library was preloaded, and the GPUs
// with their drivers and the processes that hold memory on them.
#include <fstream>

#include "tools/doctor/mapped_library.h"
#include "tools/doctor/probe.h"
#include "tools/doctor/vendor_probes.h"
#include "tools/machine/amd_partitions.h"
#include "tools/machine/driver_processes.h"
#include "tools/machine/json_values.h"
#include "tools/machine/nvml_library.h"

namespace fracgpu::tools {
namespace {

Json processes_on(const Gpu& gpu) {
  Json list = Json::array();
  for (const auto& [pid, bytes] : driver_list(gpu).value_or(DriverList())) {
    list.push_back({{"pid", pid}, {"used", bytes ? Json(*bytes) : Json(nullptr)}});
  }
  return list;
}

// The devices of a GPU in MIG mode; null if it is not in MIG mode.
Json instances_of(const Gpu& gpu, const std::vector<Gpu>& all) {
  if (!gpu.divided) return nullptr;
  Json list = Json::array();
  for (const Gpu& each : all) {
    if (!each.instance || each.instance->parent != gpu.key) continue;
    list.push_back({{"key", each.key},
                    {"number", each.number()},
                    {"profile", each.instance->profile},
                    {"gpu_instance", each.instance->gpu_instance},
                    {"compute_instance", each.instance->compute_instance},
                    {"gpu_minor", or_null(each.instance->gpu_minor)},
                    {"physical", each.physical}});
  }
  return list;
}

int probe_gpus(ProbeTeller& teller) {
  teller.step("listing the GPUs (nvmlInit_v2, /sys/class/kfd)");
  Json gpus = Json::array();
  const std::vector<Gpu> all = list_gpus();
  for (const Gpu& gpu : all) {
    if (gpu.instance) continue;  // reported with its GPU
    teller.step("listing the processes on " + gpu.label());
    const bool amd = gpu.vendor == Gpu::Vendor::amd;
    gpus.push_back({{"vendor", amd ? "amd" : "nvidia"},
                    {"index", gpu.index},
                    {"key", gpu.key},
                    {"domain", gpu.bus_id.domain},
                    {"bus", gpu.bus_id.bus},
                    {"device", gpu.bus_id.device},
                    {"function", gpu.bus_id.function},
                    {"function_is_partition", gpu.bus_id.function_is_partition},
                    {"uuid", gpu.uuid},
                    {"partition", gpu.bus_id.partition},
                    {"physical", gpu.physical},
                    {"instances", instances_of(gpu, all)},
                    {"mode", gpu.mode},
                    {"board_bus_id", amd ? board_bus_id(gpu) : ""},
                    {"processes", processes_on(gpu)}});
  }
  teller.tell("gpus", gpus);
  Json boards = Json::array();
  for (const Board& board : amd_boards(all)) {
    if (!board.modes.compute.empty()) boards.push_back(board.text());
  }
  teller.tell("boards", boards);
  const auto version_of =
      NvmlLibrary::get().find<nvml::nvmlReturn_t(char*, unsigned)>("nvmlSystemGetDriverVersion");
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
