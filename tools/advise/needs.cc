// See needs.h.
#include "tools/advise/needs.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace fracgpu::tools {

std::vector<Need> needs_of(const report::Analysis& analysis) {
  std::vector<Need> needs;
  for (const report::DeviceUse& use : analysis.devices) {
    if (use.device == recording::kNone) continue;
    const recording::DeviceInfo& device = analysis.tables.devices[use.device];
    const auto kind = [&](recording::MemoryKind each) {
      return use.peak.by_kind[static_cast<size_t>(each)];
    };
    Need need{.key = device.key,
              .name = device.name.empty() ? device.key : device.name,
              .physical = device.physical,
              .needed = use.needed.bytes,
              .needed_ns = use.needed.time_ns,
              .taken = use.taken.bytes,
              .unnamed = kind(recording::MemoryKind::overhead) + kind(recording::MemoryKind::code),
              .refusals = use.refusals,
              .processes = {}};
    for (const report::ProcessUse& each : analysis.uses) {
      if (each.device != use.device || each.process == recording::kNone) continue;
      const recording::ProcessInfo& process = analysis.tables.processes[each.process];
      need.processes.push_back({.command = process.command,
                                .pid = process.host_pid != 0 ? process.host_pid : process.pid,
                                .needed = each.needed.bytes,
                                .taken = each.taken.bytes});
    }
    needs.push_back(std::move(need));
  }
  return needs;
}

uint64_t with_margin(uint64_t needed, double share) {
  constexpr uint64_t kStep = 16u << 20;
  const auto margin = static_cast<uint64_t>(std::ceil(static_cast<double>(needed) * share));
  const uint64_t bytes = needed + std::max(margin, kLeastMargin);
  return (bytes + kStep - 1) / kStep * kStep;
}

std::vector<Spread> spread_of(const std::vector<std::vector<Need>>& runs) {
  std::map<std::string, Spread> spreads;
  std::map<std::string, std::vector<uint64_t>> needed;
  for (const std::vector<Need>& run : runs) {
    for (const Need& need : run) {
      Spread& spread = spreads[need.key];
      spread.key = need.key;
      spread.name = need.name;
      spread.physical = std::max(spread.physical, need.physical);
      spread.most_taken = std::max(spread.most_taken, need.taken);
      needed[need.key].push_back(need.needed);
    }
  }
  std::vector<Spread> all;
  for (auto& [key, spread] : spreads) {
    std::vector<uint64_t>& of_runs = needed[key];
    std::sort(of_runs.begin(), of_runs.end());
    const size_t count = of_runs.size();
    spread.runs = count;
    spread.least = of_runs.front();
    spread.median = of_runs[(count - 1) / 2];
    spread.most = of_runs.back();
    // The smallest that 99 of 100 runs did not exceed.
    spread.p99 = of_runs[(count * 99 + 99) / 100 - 1];
    all.push_back(spread);
  }
  return all;
}

}  // namespace fracgpu::tools
