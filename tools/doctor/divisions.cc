// The division of GPUs in hardware; see checks.h.
#include <fmt/core.h>

#include "tools/doctor/checks.h"

namespace fracgpu::tools {
namespace {

using State = Finding::State;

// "0:0 1g.10gb, 0:1 2g.20gb".
std::string instances_text(const Json& instances) {
  std::string text;
  for (const Json& each : instances) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", each.value("number", ""),
                        each.value("profile", ""));
  }
  return text.empty() ? "no instances" : text;
}

}  // namespace

Findings check_divisions(const ProbeReport& gpus) {
  constexpr const char* kCheck = "division";
  Findings findings;
  if (!gpus.done()) return findings;
  for (const Json& gpu : gpus.told["gpus"]) {
    if (gpu["instances"].is_null()) continue;  // not in MIG mode
    findings.push_back({State::ok, kCheck,
                        fmt::format("GPU {} ({}) is in MIG mode: {}", gpu.value("index", 0),
                                    gpu.value("key", ""), instances_text(gpu["instances"]))});
  }
  for (const Json& board : gpus.told["boards"]) {
    findings.push_back({State::ok, kCheck, board.text()});
  }
  return findings;
}

}  // namespace fracgpu::tools
