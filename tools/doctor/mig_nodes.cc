// The device nodes of MIG instances; see checks.h.
#include <fmt/core.h>

#include "tools/doctor/checks.h"
#include "tools/machine/capability_nodes.h"

namespace fracgpu::tools {

using State = Finding::State;

Findings check_mig_nodes(const ProbeReport& gpus) {
  constexpr const char* kCheck = "mig-nodes";
  Findings findings;
  if (!gpus.told.contains("gpus")) return findings;
  size_t complete = 0;
  for (const auto& gpu : gpus.told["gpus"]) {
    if (!gpu["instances"].is_array()) continue;
    for (const auto& each : gpu["instances"]) {
      if (each["gpu_minor"].is_null()) continue;
      const CapabilityNodes nodes =
          capability_nodes({.gpu_instance = each.value("gpu_instance", 0U),
                            .compute_instance = each.value("compute_instance", 0U),
                            .gpu_minor = each.value("gpu_minor", 0U)});
      const CapabilityNodes lacking = missing(nodes);
      if (!lacking.empty()) {
        const std::string label =
            fmt::format("GPU {} ({})", each.value("number", ""), each.value("key", ""));
        findings.push_back({State::warn, kCheck, lack_of(label, lacking), remedy_for(lacking)});
      } else if (!nodes.empty()) {
        ++complete;
      }
    }
  }
  if (complete > 0) {
    findings.push_back({State::ok, kCheck,
                        fmt::format("MIG instances with all their device nodes: {}", complete)});
  }
  return findings;
}

}  // namespace fracgpu::tools
