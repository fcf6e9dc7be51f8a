// See drawing.h.
#include "tools/ui/drawing.h"

#include <fmt/core.h>
#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "shim/base/text.h"

namespace fracgpu::tools {
namespace {

bool local_time(uint64_t unix_s, tm& at) {
  const auto then = static_cast<time_t>(unix_s);
  return unix_s != 0 && localtime_r(&then, &at) != nullptr;
}

bool is_today(const tm& at) {
  tm today;
  return local_time(static_cast<uint64_t>(time(nullptr)), today) && at.tm_year == today.tm_year &&
         at.tm_yday == today.tm_yday;
}

std::string format_time(const char* form, const tm& at) {
  char text[48];
  return strftime(text, sizeof text, form, &at) == 0 ? "?" : text;
}

std::string repeated(const char* sign, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += sign;
  return text;
}

// The columns for a share of the whole: at least one if the share is above 0.
int columns_of(double share, int columns) {
  const int filled = static_cast<int>(std::min(share, 1.0) * columns);
  return share > 0 ? std::max(filled, 1) : 0;
}

const char* colour_of(double share) {
  return share < 0.75 ? kGreen : share < 0.95 ? kYellow : kRed;
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

std::string painted(const Style& style, const char* colour, std::string_view text) {
  return style.colour && !text.empty() ? fmt::format("\033[{}m{}\033[0m", colour, text)
                                       : std::string(text);
}

std::string bytes(uint64_t amount) {
  return human_bytes(amount).c_str();
}

std::string bytes_at_most(uint64_t amount) {
  constexpr uint64_t kMiB = 1 << 20, kGiB = 1 << 30;
  if (amount < kMiB || amount % kGiB == 0) return bytes(amount);
  return fmt::format("{}.{} MiB", amount / kMiB, amount % kMiB * 10 / kMiB);
}

std::string amount_text(uint64_t amount) {
  constexpr uint64_t kMiB = 1 << 20, kGiB = 1 << 30;
  const uint64_t gib = (amount + kGiB - 1) / kGiB, mib = (amount + kMiB - 1) / kMiB;
  return amount >= 4 * kGiB || gib * kGiB == amount ? fmt::format("{}GiB", gib)
                                                    : fmt::format("{}MiB", mib);
}

std::string moment(uint64_t unix_s) {
  tm at;
  if (!local_time(unix_s, at)) return "?";
  return format_time(is_today(at) ? "%H:%M:%S" : "%Y-%m-%d", at);
}

std::string full_moment(uint64_t unix_s) {
  tm at;
  if (!local_time(unix_s, at)) return "at an unknown time";
  return format_time(is_today(at) ? "today at %H:%M:%S" : "on %Y-%m-%d at %H:%M:%S", at);
}

double share_of(uint64_t amount, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(amount) / static_cast<double>(whole);
}

std::string bar(const Style& style, double share, int columns) {
  const int filled = columns_of(share, columns);
  const Signs sign = signs(style);
  return painted(style, colour_of(share),
                 repeated(sign.used, filled) + repeated(sign.rest, columns - filled));
}

Signs signs(const Style& style) {
  return style.utf8 ? Signs{"█", "▓", "▒", "░"} : Signs{"#", "=", "-", "."};
}

std::string gpu_bar(const Style& style, const GpuState& gpu, int columns) {
  const double used = share_of(gpu.used(), gpu.physical);
  const int ends[] = {columns_of(used, columns),
                      columns_of(share_of(gpu.claimed(), gpu.physical), columns),
                      columns_of(share_of(gpu.capped, gpu.physical), columns), columns};
  const Signs sign = signs(style);
  const char* const drawn[] = {sign.used, sign.claimed, sign.capped, sign.rest};
  std::string text;
  int at = 0;
  for (int i = 0; i < 4; ++i) {
    const int more = std::max(ends[i] - at, 0);
    text += i == 0 ? painted(style, colour_of(used), repeated(drawn[i], more))
                   : repeated(drawn[i], more);
    at += more;
  }
  return text;
}

std::string pid_text(uint32_t host_pid, uint32_t pid) {
  return host_pid != 0 ? std::to_string(host_pid) : fmt::format("({})", pid);
}

std::string standing(const ProcessUse& process) {
  if (process.alive && process.foreign_importer) return "importer";
  if (process.alive) return moment(process.since_unix_s);
  if (process.orphaned) return "exported";
  return process.driver_used.value_or(0) > 0 ? "dying" : "dead";
}

std::string number_text(const GpuState& gpu) {
  if (!gpu.number.empty()) return fmt::format("GPU {}", gpu.number);
  return gpu.key.starts_with("MIG-") ? "MIG instance" : "GPU not seen here";
}

std::string division_text(const GpuState& gpu) {
  if (gpu.divided) return "in MIG mode";
  if (gpu.instance) return gpu.instance->profile;
  if (gpu.mode.empty() || gpu.mode.starts_with("SPX")) return gpu.mode;
  return fmt::format("{} of {}", gpu.mode, gpu.board_bus_id);
}

}  // namespace fracgpu::tools
