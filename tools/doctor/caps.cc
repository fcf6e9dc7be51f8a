// Compares the cap that should be in force with the sizes that programs see; see checks.h.
#include <fmt/core.h>

#include <algorithm>

#include "shim/base/text.h"
#include "tools/doctor/checks.h"
#include "tools/machine/ledger_reader.h"

namespace fracgpu::tools {
namespace {

using State = Finding::State;

struct Tool {
  const char *probe, *name;
  bool allocates;  // whether programs allocate through it; the others only show
};
constexpr Tool kTools[] = {{"cuda", "CUDA", true},        {"cuda-context", "cuMemGetInfo", true},
                           {"hip", "HIP", true},          {"hip-context", "hipMemGetInfo", true},
                           {"nvml", "NVML", false},       {"amdsmi", "amd-smi", false},
                           {"rocmsmi", "rocm-smi", false}};

std::string human(uint64_t bytes) {
  return human_bytes(bytes).c_str();
}

// While the tenant is at work, its ledger determines the caps, whatever is configured.
void apply_ledger(const std::string& name, std::vector<KnownGpu>& gpus) {
  const std::vector<std::string> names = tenant_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) return;
  TenantUse tenant;
  try {
    tenant = read_tenant(name);
  } catch (const std::exception&) {
    return;  // the check of the ledgers reports the reason
  }
  const bool at_work = std::any_of(tenant.devices.begin(), tenant.devices.end(),
                                   [](const DeviceUse& device) { return device.lives(); });
  if (!at_work) return;
  for (const DeviceUse& device : tenant.devices) {
    for (KnownGpu& gpu : gpus) {
      if (gpu.key == device.key) gpu.cap = gpu.least_cap = device.cap.value_or(UINT64_MAX);
    }
  }
}

constexpr uint64_t kAnySize = uint64_t{1} << 60;  // for a device of unknown size

// Whether the cap is a percentage of a device of unknown size: the cap in bytes is then not known.
bool is_part_of_unknown(const KnownGpu& gpu) {
  return gpu.physical == 0 && gpu.cap != UINT64_MAX && gpu.cap != gpu.least_cap;
}

// CUDA may give less of a device than the driver's tool reports, and a percentage then refers to
// less: 48,509 of 49,140 MiB on an RTX 6000 Ada, where the tool reports a part as reserved
// (unslothai/unsloth-zoo PR 1053).
uint64_t least_of(uint64_t physical) {
  return physical - physical / 64;
}

KnownGpu known(const Json& gpu, const DeviceName& name, std::string label, uint64_t physical,
               const Setup& setup) {
  const auto cap_of = [&](uint64_t bytes) {
    return std::min(setup.asked.cap_for(name, bytes), setup.ceiling.cap_for(name, bytes));
  };
  const uint64_t whole = physical != 0 ? physical : kAnySize;
  return {.key = std::string(name.key),
          .vendor = gpu.value("vendor", ""),
          .label = std::move(label),
          .physical = physical,
          .cap = cap_of(whole),
          .least_cap = cap_of(least_of(whole))};
}

// Whether a tool shows the GPU correctly: the cap, or the whole size if that is less.
bool shows(const KnownGpu& gpu, uint64_t total) {
  if (is_part_of_unknown(gpu)) return total > 0;
  return (total >= gpu.least_cap && total <= gpu.cap) ||
         (gpu.cap >= gpu.physical && total <= gpu.physical);
}

}  // namespace

std::vector<KnownGpu> known_gpus(const ProbeReport& gpus, const Setup& setup) {
  std::vector<KnownGpu> all;
  if (!gpus.told.contains("gpus")) return all;
  for (const auto& each : gpus.told["gpus"]) {
    const std::string key = each.value("key", "");
    const std::string label = fmt::format("GPU {}", each.value("index", 0));
    DeviceName name{
        .key = key,
        .whole = Text<64>(each.value("uuid", "")),
        .index = each.value("index", -1),
        .has_bus_id = true,
        .bus_id = {.domain = each.value("domain", 0U),
                   .bus = each.value("bus", 0U),
                   .device = each.value("device", 0U),
                   .function = each.value("function", 0U),
                   .partition = each.value("partition", -1),
                   .function_is_partition = each.value("function_is_partition", false)}};
    const Json& instances = each["instances"];
    if (!instances.is_array()) {
      all.push_back(known(each, name, fmt::format("{} ({})", label, key),
                          each.value("physical", uint64_t{0}), setup));
      continue;
    }
    // For a GPU in MIG mode, memory is taken and capped on its instances, and not on the GPU
    // itself.
    name.whole.assign(key);
    for (const auto& instance : instances) {
      const std::string of_instance = instance.value("key", "");
      name.key = of_instance;
      all.push_back(known(each, name,
                          fmt::format("GPU {} ({})", instance.value("number", ""), of_instance),
                          instance.value("physical", uint64_t{0}), setup));
    }
  }
  if (!setup.tenant.empty()) apply_ledger(setup.tenant, all);
  return all;
}

Findings check_caps(const VendorReports& vendors, const std::vector<KnownGpu>& gpus,
                    const Setup& setup) {
  constexpr const char* kCheck = "cap";
  Findings findings;
  if (!setup.capped() || !setup.sound) return findings;
  for (const KnownGpu& gpu : gpus) {
    if (gpu.cap == UINT64_MAX) {
      findings.push_back({State::warn, kCheck, gpu.label + " is not capped: no limit names it",
                          "write a limit without a name, which means every GPU"});
      continue;
    }
    std::string same, other;
    State state = State::warn;
    for (const Tool& tool : kTools) {
      const auto report = vendors.find(tool.probe);
      if (report == vendors.end() || !report->second.told.contains("totals")) continue;
      for (const auto& each : report->second.told["totals"]) {
        if (each.value("key", "") != gpu.key) continue;
        const uint64_t total = each.value("total", uint64_t{0});
        if (shows(gpu, total)) {
          same += (same.empty() ? "" : ", ") + std::string(tool.name);
        } else {
          if (tool.allocates) state = State::fail;
          other += fmt::format("{}{} shows {}", other.empty() ? "" : ", ", tool.name, human(total));
        }
      }
    }
    const std::string cap =
        is_part_of_unknown(gpu)
            ? fmt::format("{}: cap in percent, of a size that the driver does not tell", gpu.label)
        : gpu.physical == 0
            ? fmt::format("{}: cap {}", gpu.label, human(gpu.cap))
            : fmt::format("{}: cap {} of {}", gpu.label, human(gpu.cap), human(gpu.physical));
    if (!other.empty()) {
      findings.push_back({state, kCheck, fmt::format("{}, but {}", cap, other),
                          "see the checks of the drivers and of the lookups"});
    } else if (same.empty()) {
      findings.push_back({State::warn, kCheck, cap + ", and no tool here shows it",
                          "is the GPU given to this container, or hidden by "
                          "CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES?"});
    } else {
      findings.push_back({State::ok, kCheck, fmt::format("{}, as shown by {}", cap, same)});
    }
  }
  return findings;
}

}  // namespace fracgpu::tools
