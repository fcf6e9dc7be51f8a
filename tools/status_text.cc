// `fracgpu status` as text: per device a bar of what is used of the cap, then who uses it.
#include <fmt/format.h>
#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "shim/text.h"
#include "tools/status.h"

namespace fracgpu::tools {
namespace {

constexpr int kBarColumns = 40;

constexpr const char* kRed = "31";
constexpr const char* kGreen = "32";
constexpr const char* kYellow = "33";
constexpr const char* kBold = "1";
constexpr const char* kDim = "2";

class Page {
 public:
  explicit Page(const Style& style) : style_(style) {}

  void tenant(const TenantUse& tenant);
  std::string take() { return std::move(out_); }

 private:
  void device(const DeviceUse& device);
  void process(const ProcessUse& process);
  std::string bar(double share) const;

  std::string painted(const char* colour, std::string_view text) const {
    return style_.colour ? fmt::format("\033[{}m{}\033[0m", colour, text) : std::string(text);
  }
  template <typename... Args>
  void line(fmt::format_string<Args...> pattern, Args&&... args) {
    out_ += fmt::format(pattern, std::forward<Args>(args)...) + "\n";
  }

  Style style_;
  std::string out_;
};

std::string bytes(uint64_t amount) {
  return human_bytes(amount).c_str();
}

// The time of day for today, else the date.
std::string moment(uint64_t unix_s) {
  const time_t then = static_cast<time_t>(unix_s), now = time(nullptr);
  tm at, today;
  if (unix_s == 0 || localtime_r(&then, &at) == nullptr || localtime_r(&now, &today) == nullptr) {
    return "?";
  }
  const bool is_today = at.tm_year == today.tm_year && at.tm_yday == today.tm_yday;
  char text[32];
  return strftime(text, sizeof text, is_today ? "%H:%M:%S" : "%Y-%m-%d", &at) == 0 ? "?" : text;
}

std::string Page::bar(double share) const {
  // Never full unless it is, and never empty when something is used.
  int filled = static_cast<int>(share * kBarColumns);
  if (share > 0) filled = std::max(filled, 1);
  filled = std::min(filled, kBarColumns);
  std::string text;
  for (int i = 0; i < kBarColumns; ++i) {
    text += i < filled ? (style_.utf8 ? "█" : "#") : (style_.utf8 ? "░" : ".");
  }
  return painted(share < 0.75 ? kGreen : share < 0.95 ? kYellow : kRed, text);
}

void Page::process(const ProcessUse& process) {
  // A PID that only the process's own container knows is given in parentheses.
  const std::string pid =
      process.host_pid != 0 ? std::to_string(process.host_pid) : fmt::format("({})", process.pid);
  const std::string row = fmt::format("  {:>8.8} {:<9.9} {:<15.15} {:>10} {:>10} {:>10} {:>10.10}",
                                      pid, process.user, process.command, bytes(process.used),
                                      bytes(process.peak), bytes(process.implicit),
                                      process.alive      ? moment(process.since_unix_s)
                                      : process.orphaned ? "exported"
                                                         : "dead");
  line("{}", process.alive ? row : painted(kDim, row));
}

void Page::device(const DeviceUse& device) {
  const uint64_t whole = device.cap.value_or(device.physical);
  const double share = whole == 0 ? 0 : static_cast<double>(device.used) / whole;
  line("  {}, {} {}", device.key, bytes(device.physical), device.cap ? "in all" : "and not capped");
  line("  {} {:>4.0f}%  {} of {}", bar(share), std::min(share * 100, 999.0), bytes(device.used),
       bytes(whole));
  line("  peak {}, {} refused", bytes(device.peak), device.refusals);
  if (device.damaged) line("  DAMAGED: nothing is granted until all its processes have ended");
  if (device.processes.empty()) return;
  line("{}", painted(kDim, fmt::format("  {:>8} {:<9} {:<15} {:>10} {:>10} {:>10} {:>10}", "PID",
                                       "USER", "COMMAND", "USED", "PEAK", "IMPLICIT", "SINCE")));
  for (const ProcessUse& each : device.processes) process(each);
  if (std::any_of(device.processes.begin(), device.processes.end(),
                  [](const ProcessUse& each) { return !each.alive && !each.orphaned; })) {
    line("  What the dead held is not counted: it is free for others.");
  }
  if (std::any_of(device.processes.begin(), device.processes.end(),
                  [](const ProcessUse& each) { return each.orphaned; })) {
    line("  \"exported\": its process is dead, but others still hold what it gave them.");
  }
}

void Page::tenant(const TenantUse& tenant) {
  if (!out_.empty()) out_ += "\n";
  line("{}", painted(kBold, tenant.name));
  if (tenant.devices.empty()) line("  has used no GPU yet");
  for (const DeviceUse& each : tenant.devices) device(each);
}

}  // namespace

Style Style::of_stdout() {
  const char* const terminal = getenv("TERM");
  return {
      .utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
      .colour = isatty(STDOUT_FILENO) == 1 && getenv("NO_COLOR") == nullptr &&
                terminal != nullptr && strcmp(terminal, "dumb") != 0,
  };
}

std::string status_text(const std::vector<TenantUse>& tenants, const Style& style) {
  Page page(style);
  for (const TenantUse& tenant : tenants) page.tenant(tenant);
  return page.take();
}

}  // namespace fracgpu::tools
