// `fracgpu status` as text: for each GPU a bar of its memory, then its tenants and their processes.
#include <fmt/core.h>

#include <algorithm>

#include "tools/commands/status.h"
#include "tools/launch/request.h"

namespace fracgpu::tools {
namespace {

constexpr int kBarColumns = 40;
constexpr const char* kRow = "  {:>8.8} {:<9.9} {:<15.15} {:>10} {:>10} {:>10} {:>10.10}";

class Page {
 public:
  Page(const MachineState& machine, const Style& style) : machine_(machine), style_(style) {}

  void gpu(const GpuState& gpu);
  void without_gpu(const TenantUse& tenant);
  std::string take() { return std::move(out_); }

 private:
  void tenant(const GpuState& gpu, const TenantOnGpu& tenant);
  void processes(const DeviceUse& device);
  void outsiders(const GpuState& gpu);

  template <typename... Args>
  void line(fmt::format_string<Args...> pattern, Args&&... args) {
    out_ += fmt::format(pattern, std::forward<Args>(args)...) + "\n";
  }
  void heading() {
    line("{}",
         painted(style_, kDim,
                 fmt::format(kRow, "PID", "USER", "COMMAND", "USED", "PEAK", "CONTEXT", "SINCE")));
  }

  const MachineState& machine_;
  Style style_;
  std::string out_;
};

bool any(const DeviceUse& device, const char* standing_word) {
  return std::any_of(device.processes.begin(), device.processes.end(),
                     [&](const ProcessUse& each) { return standing(each) == standing_word; });
}

void Page::processes(const DeviceUse& device) {
  if (device.processes.empty()) return;
  heading();
  for (const ProcessUse& each : device.processes) {
    const std::string row =
        fmt::format(kRow, pid_text(each.host_pid, each.pid), each.user, each.command,
                    bytes(each.used), bytes(each.peak), bytes(each.overhead), standing(each));
    line("{}", each.alive ? row : painted(style_, kDim, row));
  }
  if (any(device, "dead")) line("  What the dead held is not counted: it is free for others.");
  if (any(device, "dying")) line("  \"dying\": the driver has not let go of its memory yet.");
  if (any(device, "exported")) {
    line("  \"exported\": its process is dead, but others still hold what it gave them.");
  }
  if (any(device, "importer"))
    line("  \"importer\": of another tenant, with memory of this one imported.");
}

void Page::tenant(const GpuState& gpu, const TenantOnGpu& tenant) {
  std::string facts;
  if (const TenantUse* const known = machine_.tenant(tenant.name); known && !known->claim.empty()) {
    facts += fmt::format(", claim {}", known->claim);
  }
  if (tenant.claimed_eighths > 0) {
    facts += fmt::format(", claims {}", fraction_text(tenant.claimed_eighths));
  }
  if (tenant.use) facts += fmt::format(", peak {}", bytes(tenant.use->peak));
  if (tenant.use && tenant.use->needed)
    facts += fmt::format(", needed {} at most", bytes(*tenant.use->needed));
  if (tenant.use && tenant.use->refusals.total() > 0) {
    facts += fmt::format(", {} refused", tenant.use->refusals.total());
  }
  // The facts are known only here, and a name may take a whole line.
  line("  {}{}", painted(style_, kBold, tenant.name),
       tenant.name.size() + facts.size() > 78 ? "\n   " + facts.substr(1) : facts);
  if (!tenant.use) return line("  has used nothing here yet");
  const DeviceUse& use = *tenant.use;
  const uint64_t whole = use.cap.value_or(gpu.physical);
  const double share = share_of(use.used, whole);
  line("  {} {:>4.0f}%  {} of {}{}", bar(style_, share, kBarColumns), std::min(share * 100, 999.0),
       bytes(use.used), bytes(whole), use.cap ? "" : ", not capped");
  if (use.damaged) line("  DAMAGED: nothing is granted until all its processes have ended");
  processes(use);
}

void Page::outsiders(const GpuState& gpu) {
  if (gpu.outsiders.empty()) return;
  line("  {}: the driver counts memory for these, and no ledger knows them",
       painted(style_, kRed, "UNDER NO CAP"));
  heading();
  for (const Outsider& each : gpu.outsiders) {
    line(kRow, std::to_string(each.pid), each.user, each.command,
         each.used ? bytes(*each.used) : "?", "", "", moment(each.since_unix_s));
  }
}

void Page::gpu(const GpuState& gpu) {
  if (!out_.empty()) out_ += "\n";
  const Signs sign = signs(style_);
  const std::string division = division_text(gpu);
  line("{}{}{}", painted(style_, kBold, fmt::format("{}  {}", number_text(gpu), gpu.key)),
       division.empty() ? "" : "  ", division);
  line("  {} {:>4.0f}%", gpu_bar(style_, gpu, kBarColumns),
       std::min(share_of(gpu.used(), gpu.physical) * 100, 999.0));
  line("  {} {} used  {} {} claimed  {} {} capped  {} {}", sign.used, bytes(gpu.used()),
       sign.claimed, bytes(gpu.claimed()), sign.capped, bytes(gpu.capped), sign.rest,
       bytes(gpu.physical));
  for (const TenantOnGpu& each : gpu.tenants) tenant(gpu, each);
  outsiders(gpu);
}

void Page::without_gpu(const TenantUse& tenant) {
  if (!out_.empty()) out_ += "\n";
  line("{}", painted(style_, kBold, tenant.name));
  line("  has used no GPU yet");
}

}  // namespace

std::string status_text(const MachineState& machine, const Style& style) {
  Page page(machine, style);
  for (const GpuState& gpu : machine.gpus) page.gpu(gpu);
  for (const TenantUse& tenant : machine.tenants) {
    if (tenant.devices.empty()) page.without_gpu(tenant);
  }
  return page.take();
}

}  // namespace fracgpu::tools
