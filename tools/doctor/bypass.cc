// Compares the driver's processes with the ledgers'; see checks.h.
#include <fmt/core.h>

#include <set>

#include "shim/base/text.h"
#include "shim/config/identity.h"
#include "tools/cli/plain_text.h"
#include "tools/doctor/checks.h"
#include "tools/doctor/mapped_library.h"
#include "tools/doctor/program.h"
#include "tools/doctor/tenant_processes.h"

namespace fracgpu::tools {
namespace {

using State = Finding::State;
constexpr const char* kCheck = "bypass";
constexpr size_t kMostNamed = 8;

// The processes of all tenants that are visible here.
TenantProcesses tenant_processes() {
  TenantProcesses all;
  for (const std::string& name : tenant_names()) {
    try {
      all.add(read_tenant(name));
    } catch (const std::exception&) {
      // The check of the ledgers reports the reason.
    }
  }
  return all;
}

Finding describe(uint32_t pid, const std::string& used, const std::string& gpu) {
  const std::string who = fmt::format("PID {} ({})", pid, command_of(pid));
  Finding finding{State::warn, kCheck,
                  fmt::format("{} holds {} of {} under no cap", who, used, gpu),
                  "start it under fracgpu run, or in a container that preloads the library"};
  const Finding program = judge_executable(fmt::format("/proc/{}/exe", pid), "its program");
  if (program.state == State::fail) {
    finding.text += ": " + program.text;
    finding.remedy = program.remedy;
  } else if (!mapped_library(std::to_string(pid)).empty()) {
    finding.text += ": it has the library, and no limit is configured for it";
    finding.remedy = "set FRACGPU_MEMORY_LIMIT where it is started";
  }
  return finding;
}

}  // namespace

Findings check_bypass(const ProbeReport& gpus) {
  Findings findings;
  if (!gpus.told.contains("gpus") || gpus.told["gpus"].empty()) return findings;
  const TenantProcesses tenants = tenant_processes();
  std::set<uint32_t> under_cap, others;
  for (const auto& gpu : gpus.told["gpus"]) {
    const std::string label = fmt::format("GPU {}", gpu.value("key", ""));
    std::set<uint32_t> here;
    for (const auto& process : gpu["processes"]) {
      const uint32_t pid = process.value("pid", 0U);
      if (tenants.knows(pid)) under_cap.insert(pid);
      if (tenants.knows(pid) || !here.insert(pid).second) continue;
      others.insert(pid);
      if (findings.size() >= kMostNamed) continue;
      findings.push_back(describe(pid,
                                  process["used"].is_null()
                                      ? "memory"
                                      : human_bytes(process["used"].as<uint64_t>()).c_str(),
                                  label));
    }
  }
  if (others.size() > findings.size()) {
    findings.push_back({State::warn, kCheck,
                        fmt::format("{} more processes hold GPU memory under no cap",
                                    others.size() - findings.size()),
                        "fracgpu doctor --json on the host names the first of them"});
  }
  if (findings.empty()) {
    const char* const scope =
        in_host_pid_namespace() ? "" : " that can be seen from this container";
    findings.push_back({State::ok, kCheck,
                        under_cap.empty() ? fmt::format("no process{} holds GPU memory", scope)
                                          : fmt::format("the {} GPU processes{} are all under caps",
                                                        under_cap.size(), scope)});
  }
  return findings;
}

}  // namespace fracgpu::tools
