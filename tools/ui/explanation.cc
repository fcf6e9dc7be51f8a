// Explains the last refusal of a tenant and the present state; see explanation.h.
#include "tools/ui/explanation.h"

#include <fmt/core.h>

#include <algorithm>

#include "tools/cli/output.h"
#include "tools/ui/drawing.h"

namespace fracgpu::tools {
namespace {

constexpr size_t kWidth = 80;
constexpr size_t kHoldersShown = 8;
constexpr size_t kEarlierShown = 10;

// Wraps words into lines of 80 columns: `first` begins the first line, `next` every other line.
std::string wrapped(const std::string& text, const std::string& first, const std::string& next) {
  std::string out, line = first;
  bool empty = true;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!empty && line.size() + 1 + word.size() > kWidth) {
      out += line + "\n";
      line = next;
      empty = true;
    }
    line += (empty ? "" : " ") + word;
    empty = false;
    at = end + 1;
  }
  return out + line + "\n";
}

std::string times(uint64_t count) {
  return count == 1 ? "once" : fmt::format("{} times", count);
}

std::string device_text(const MachineState& machine, const std::string& key) {
  if (key.empty()) return "a GPU that could not be told";
  const GpuState* const gpu = machine.gpu(key);
  if (gpu == nullptr || gpu->number.empty()) return key;
  const std::string division = division_text(*gpu);
  return fmt::format("GPU {} ({}{}{})", gpu->number, key, division.empty() ? "" : ", ", division);
}

std::string holder_row(const std::string& pid, const std::string& user, const std::string& command,
                       const std::string& tenant, const std::string& used,
                       const std::string& since) {
  return fmt::format("  {:>8.8} {:<9.9} {:<15.15} {:<20.20} {:>10} {:>10.10}\n", pid, user, command,
                     tenant, used, since);
}

// The processes that hold memory of the GPU now: this tenant's, other tenants', and those under no
// cap.
std::string holders(const MachineState& machine, const std::string& tenant, const GpuState& gpu) {
  struct Row {
    uint64_t used;
    std::string text;
  };
  std::vector<Row> rows;
  for (const TenantOnGpu& each : gpu.tenants) {
    if (!each.use) continue;
    for (const ProcessUse& process : each.use->processes) {
      // A dead process's memory counts only if others still have it or the driver says so.
      const bool holds = process.alive || process.orphaned || process.driver_used.value_or(0) != 0;
      if (process.used == 0 || !holds) continue;
      rows.push_back(
          {process.used, holder_row(pid_text(process.host_pid, process.pid), process.user,
                                    process.command, each.name == tenant ? "(this one)" : each.name,
                                    bytes(process.used), standing(process))});
    }
  }
  for (const Outsider& each : gpu.outsiders) {
    rows.push_back({each.used.value_or(0),
                    holder_row(std::to_string(each.pid), each.user, each.command, "(under no cap)",
                               each.used ? bytes(*each.used) : "?", moment(each.since_unix_s))});
  }
  std::string text =
      wrapped(fmt::format("Now {} of {} on {} are in use{}", bytes(gpu.used()), bytes(gpu.physical),
                          device_text(machine, gpu.key), rows.empty() ? "." : ", held by"),
              "", "");
  if (rows.empty()) return text;
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.used > b.used; });
  text += holder_row("PID", "USER", "COMMAND", "TENANT", "USED", "SINCE");
  for (size_t i = 0; i < std::min(rows.size(), kHoldersShown); ++i) text += rows[i].text;
  if (rows.size() > kHoldersShown) {
    text += fmt::format("  and {} more; fracgpu status shows all\n", rows.size() - kHoldersShown);
  }
  return text;
}

std::string earlier(const TenantUse& tenant) {
  if (tenant.refused.size() < 2) return {};
  std::string text = "\nBefore that:\n";
  for (size_t i = 1; i < tenant.refused.size() && i <= kEarlierShown; ++i) {
    const RefusalUse& one = tenant.refused[i];
    text += fmt::format("  {:>10.10} {:>8.8} {:<15.15} {:<20.20} {:>10} {:>8}\n",
                        moment(one.unix_ms / 1000), pid_text(one.host_pid, one.pid), one.command,
                        one.api, one.asked ? bytes(*one.asked) : "?", name_of(one.reason));
  }
  if (tenant.refused.size() > kEarlierShown + 1) {
    text += fmt::format("  and {} more; --json shows all that are kept\n",
                        tenant.refused.size() - kEarlierShown - 1);
  }
  return text;
}

// The requested amount, and the memory that it takes if that reads differently.
std::string asked_text(const RefusalUse& one) {
  if (!one.asked) return "memory";
  const std::string asked = bytes(*one.asked), needed = bytes(*one.needed);
  return asked == needed ? asked : fmt::format("{} (which takes {})", asked, needed);
}

}  // namespace

std::string story(const MachineState& machine, const RefusalUse& one) {
  std::string text = fmt::format(
      "{}, {} (PID {}, user {}) called {} on {}.", full_moment(one.unix_ms / 1000), one.command,
      pid_text(one.host_pid, one.pid), one.user, one.api, device_text(machine, one.key));
  text[0] = static_cast<char>(toupper(static_cast<unsigned char>(text[0])));
  const std::string asked = asked_text(one);
  const std::string cap = one.cap ? bytes(*one.cap) : "no cap";
  switch (one.reason) {
    case Reason::cap: {
      const uint64_t free = one.cap.value_or(0) - std::min(one.cap.value_or(0), one.held);
      const uint64_t missing = one.needed.value_or(0) - std::min(one.needed.value_or(0), free);
      text += fmt::format(" It asked for {}. Of the cap of {}, {} were in use", asked, cap,
                          bytes(one.held));
      if (one.cap && one.held > *one.cap) {
        text += ", more than the cap, which must have been lowered; nothing was free.";
      } else {
        text += fmt::format(" and {} free: {} too little.", bytes(free), bytes(missing));
      }
      break;
    }
    case Reason::driver:
      text += fmt::format(
          " It asked for {}, for which the cap of {} had room ({} were in use), but the driver had "
          "no memory: the GPU itself was full.",
          asked, cap, bytes(one.held));
      break;
    case Reason::runtime:
      text += fmt::format(
          " The vendor's runtime refused by its own count, before fracgpu was asked; {} of the cap "
          "of {} were in use.",
          bytes(one.held), cap);
      break;
    case Reason::ledger:
      text += " fracgpu could grant nothing: the ledger was unusable, or the cap not known.";
      break;
  }
  if (one.largest == 0 || one.reason == Reason::ledger) return text;
  text +=
      held_the_most_itself(one)
          ? fmt::format(" The most, {}, was held by that process itself.", bytes(one.own))
          : fmt::format(" The most, {}, was held by {} (PID {}); the asking process held {}.",
                        bytes(one.largest), one.largest_command, one.largest_pid, bytes(one.own));
  return text;
}

uint64_t refusals_of(const TenantUse& tenant) {
  uint64_t sum = tenant.refusals_elsewhere.total();
  for (const DeviceUse& device : tenant.devices) sum += device.refusals.total();
  return sum;
}

std::string explanation(const MachineState& machine, const TenantUse& tenant) {
  const uint64_t count = refusals_of(tenant);
  if (tenant.refused.empty()) {
    return count == 0 ? fmt::format("{} was never refused.\n", tenant.name)
                      : fmt::format("{} was refused {}, of which no record can be read.\n",
                                    tenant.name, times(count));
  }
  const RefusalUse& last = tenant.refused.front();
  // The counters start anew with a new generation of processes; the records stay.
  std::string text =
      count == 0 ? fmt::format("{} was refused before its present processes came.\n\n", tenant.name)
                 : fmt::format("{} was refused {}.\n\n", tenant.name, times(count));
  text += wrapped(story(machine, last), "", "");
  if (const GpuState* const gpu = machine.gpu(last.key)) {
    text += "\n" + holders(machine, tenant.name, *gpu);
  }
  text += "\nWhat would have helped:\n";
  for (const std::string& line : advice(machine, tenant, last)) text += wrapped(line, "- ", "  ");
  return text + earlier(tenant);
}

void complain_of_refusals(const std::string& tenant) {
  const MachineState machine = look_at_machine({.names = {tenant}, .neighbours = true});
  // A tenant that used no GPU has no ledger and thus no refusals.
  for (const TenantUse& one : machine.tenants) {
    if (!one.refused.empty()) complain(explanation(machine, one));
  }
}

}  // namespace fracgpu::tools
