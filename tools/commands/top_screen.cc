// See top_screen.h.
#include "tools/commands/top_screen.h"

#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <string_view>

#include "tools/launch/request.h"
#include "tools/ui/terminal.h"

namespace fracgpu::tools {
namespace {

constexpr std::string_view kHelp[] = {
    "fracgpu top: who holds GPU memory now",
    "",
    "  t        processes or tenants       g        GPUs alone, or with the list",
    "  up down  a line                     PgUp PgDn, Home End  a page, all the way",
    "  u p      sort by used, by peak      n        by tenant",
    "  d        by GPU                     s        by age: the newest first",
    "  r        by refusals                i        the other way round",
    "  h ?      this help, and away again  q        quit",
    "",
    "A GPU's bar: used, else claimed (fracgpu run --fraction), else under caps, rest.",
    "SINCE says \"dead\" where what is held is free for others, \"dying\" where the",
    "driver has not let go of it yet, \"exported\" where others still hold it, and",
    "\"importer\" where another tenant's process has memory of this one's imported.",
    "\"(no cap)\": the driver counts memory for it, and no ledger knows it.",
};

constexpr const char* kProcessRow = "{:>7.7} {:<8.8} {:<14.14} {:>3.3} {:>9} {:>9} {:>10.10} {}";
constexpr const char* kTenantRow = "{:<20.20} {:>3.3} {} {:>9} {:>9} {:>6} {:>9} {:>7}";
constexpr int kTenantBar = 10;
constexpr const char* kGpuRow = "{:>3.3} {} {:>9} {:>9} {:>7} {:>9}";
constexpr int kGpuColumns = 3 + 1 + 1 + 9 + 1 + 9 + 1 + 7 + 1 + 9;  // without the bar

// Cuts a text without colours to `columns`. Only bars are not ASCII. Their signs take three bytes
// each.
std::string cut(const std::string& text, int columns) {
  size_t at = 0;
  for (int column = 0; at < text.size() && column < columns; ++column) {
    at += (static_cast<unsigned char>(text[at]) & 0xe0) == 0xe0 ? 3 : 1;
  }
  return text.substr(0, at);
}

std::string short_number(const GpuState& gpu) {
  if (!gpu.number.empty()) return gpu.number;
  return gpu.key.starts_with("MIG-") ? "MIG" : "?";
}

}  // namespace

struct TopScreen::Row {
  uint64_t used = 0, peak = 0, since = 0, refused = 0;
  std::string name;
  size_t gpu = 0;  // place in the machine's list
  std::string text;
  const char* colour = nullptr;
};

std::vector<TopScreen::Row> TopScreen::process_rows(const MachineState& machine) const {
  std::vector<Row> rows;
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const GpuState& gpu = machine.gpus[i];
    for (const TenantOnGpu& tenant : gpu.tenants) {
      if (!tenant.use) continue;
      for (const ProcessUse& one : tenant.use->processes) {
        rows.push_back({one.used, one.peak, one.since_unix_s, tenant.use->refusals.total(),
                        tenant.name, i,
                        fmt::format(kProcessRow, pid_text(one.host_pid, one.pid), one.user,
                                    tenant.name, short_number(gpu), bytes(one.used),
                                    bytes(one.peak), standing(one), one.command),
                        one.alive ? nullptr : kDim});
      }
    }
    for (const Outsider& one : gpu.outsiders) {
      rows.push_back({one.used.value_or(0), 0, one.since_unix_s, 0, "(no cap)", i,
                      fmt::format(kProcessRow, std::to_string(one.pid), one.user, "(no cap)",
                                  short_number(gpu), one.used ? bytes(*one.used) : "?", "",
                                  moment(one.since_unix_s), one.command),
                      kRed});
    }
  }
  return rows;
}

std::vector<TopScreen::Row> TopScreen::tenant_rows(const MachineState& machine) const {
  std::vector<Row> rows;
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const GpuState& gpu = machine.gpus[i];
    for (const TenantOnGpu& tenant : gpu.tenants) {
      const DeviceUse use = tenant.use.value_or(DeviceUse());
      const uint64_t whole = use.cap.value_or(gpu.physical);
      uint64_t since = 0;
      for (const ProcessUse& one : use.processes) since = std::max(since, one.since_unix_s);
      const Style plain{.utf8 = style_.utf8};
      rows.push_back(
          {use.used, use.peak, since, use.refusals.total(), tenant.name, i,
           fmt::format(kTenantRow, tenant.name, short_number(gpu),
                       bar(plain, share_of(use.used, whole), kTenantBar), bytes(use.used),
                       use.cap ? bytes(*use.cap) : "none",
                       tenant.claimed_eighths > 0 ? fraction_text(tenant.claimed_eighths) : "",
                       bytes(use.peak), use.refusals.total())});
    }
  }
  return rows;
}

std::vector<TopScreen::Row> TopScreen::sorted_rows(const MachineState& machine) const {
  std::vector<Row> rows = by_tenant_ ? tenant_rows(machine) : process_rows(machine);
  const auto before = [this](const Row& a, const Row& b) {
    switch (order_) {
      case Order::used:
        return a.used > b.used;
      case Order::peak:
        return a.peak > b.peak;
      case Order::name:
        return a.name < b.name;
      case Order::gpu:
        return a.gpu < b.gpu;
      case Order::since:
        return a.since > b.since;
      case Order::refused:
        return a.refused > b.refused;
    }
    return false;
  };
  std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
    return reversed_ ? before(b, a) : before(a, b);
  });
  return rows;
}

std::vector<std::string> TopScreen::gpu_lines(const MachineState& machine, int most,
                                              int columns) const {
  std::vector<std::string> lines;
  const int width = std::clamp(columns - kGpuColumns, 8, 60);
  const std::string space(static_cast<size_t>(width), ' ');
  lines.push_back(
      painted(style_, kDim,
              cut(fmt::format(kGpuRow, "GPU", space, "USED", "OF", "CLAIMED", "CAPPED"), columns)));
  int left = static_cast<int>(machine.gpus.size());
  for (const GpuState& gpu : machine.gpus) {
    if (static_cast<int>(lines.size()) >= most && left > 1) {
      lines.push_back(cut(fmt::format("    and {} more; g shows all", left), columns));
      break;
    }
    --left;
    // Cut without colours first, so that colour codes do not count as columns.
    const Style plain{.utf8 = style_.utf8};
    const std::string drawn = gpu_bar(plain, gpu, width);
    std::string line =
        cut(fmt::format(kGpuRow, short_number(gpu), drawn, bytes(gpu.used()), bytes(gpu.physical),
                        gpu.claimed_eighths > 0 ? fraction_text(gpu.claimed_eighths) : "-",
                        bytes(gpu.capped)),
            columns);
    if (const size_t at = line.find(drawn); at != line.npos) {
      line.replace(at, drawn.size(), gpu_bar(style_, gpu, width));
    }
    lines.push_back(line);
  }
  if (machine.gpus.empty()) lines.push_back(cut("    no GPU here", columns));
  return lines;
}

std::string TopScreen::title(const MachineState& machine) const {
  uint64_t refused = 0, outsiders = 0;
  size_t processes = 0;
  for (const GpuState& gpu : machine.gpus) {
    outsiders += gpu.outsiders.size();
    for (const TenantOnGpu& tenant : gpu.tenants) {
      if (!tenant.use) continue;
      refused += tenant.use->refusals.total();
      for (const ProcessUse& one : tenant.use->processes) processes += one.lives() ? 1 : 0;
    }
  }
  std::string text = fmt::format("fracgpu {}  {} GPUs, {} tenants, {} processes, {} refused",
                                 moment(static_cast<uint64_t>(time(nullptr))), machine.gpus.size(),
                                 machine.tenants.size(), processes, refused);
  if (outsiders > 0) text += fmt::format(", {} under no cap", outsiders);
  if (!machine.complaints.empty()) {
    text += fmt::format(", {} could not be read", machine.complaints.size());
  }
  return text;
}

std::vector<std::string> TopScreen::picture(const MachineState& machine, int rows, int columns) {
  std::vector<std::string> lines;
  if (help_) {
    for (const std::string_view line : kHelp) lines.push_back(cut(std::string(line), columns));
    lines.resize(std::min<size_t>(lines.size(), static_cast<size_t>(rows)));
    return lines;
  }
  lines.push_back(painted(style_, kBold, cut(title(machine), columns)));
  const int for_gpus = gpus_only_ ? rows - 2 : std::max((rows - 4) / 2, 1);
  for (std::string& line : gpu_lines(machine, for_gpus, columns)) lines.push_back(std::move(line));

  std::string where;
  if (!gpus_only_) {
    const std::vector<Row> list = sorted_rows(machine);
    lines.push_back(painted(
        style_, kDim,
        cut(by_tenant_ ? fmt::format(kTenantRow, "TENANT", "GPU", std::string(kTenantBar, ' '),
                                     "USED", "CAP", "CLAIMS", "PEAK", "REFUSED")
                       : fmt::format(kProcessRow, "PID", "USER", "TENANT", "GPU", "USED", "PEAK",
                                     "SINCE", "COMMAND"),
            columns)));
    page_ = std::max(rows - static_cast<int>(lines.size()) - 1, 1);
    const int count = static_cast<int>(list.size());
    first_ = std::clamp(first_, 0, std::max(count - page_, 0));
    const int end = std::min(first_ + page_, count);
    for (int i = first_; i < end; ++i) {
      const std::string text = cut(list[static_cast<size_t>(i)].text, columns);
      const char* const colour = list[static_cast<size_t>(i)].colour;
      lines.push_back(colour == nullptr ? text : painted(style_, colour, text));
    }
    where =
        count == 0 ? "  nobody uses a GPU" : fmt::format("  {}-{} of {}", first_ + 1, end, count);
  }
  lines.resize(static_cast<size_t>(std::max(rows - 1, 0)));
  lines.push_back(
      painted(style_, kDim, cut("q quit  h help  t tenants  u p n d s r sort" + where, columns)));
  if (static_cast<int>(lines.size()) > rows) lines.resize(static_cast<size_t>(rows));
  return lines;
}

bool TopScreen::press(int key) {
  const auto sort_by = [this](Order order) {
    order_ = order;
    first_ = 0;
  };
  switch (key) {
    case 'q':
    case 'Q':
      return false;
    case 'h':
    case '?':
      help_ = !help_;
      break;
    case 't':
      by_tenant_ = !by_tenant_;
      first_ = 0;
      break;
    case 'g':
      gpus_only_ = !gpus_only_;
      break;
    case 'i':
      reversed_ = !reversed_;
      break;
    case 'u':
      sort_by(Order::used);
      break;
    case 'p':
      sort_by(Order::peak);
      break;
    case 'n':
      sort_by(Order::name);
      break;
    case 'd':
      sort_by(Order::gpu);
      break;
    case 's':
      sort_by(Order::since);
      break;
    case 'r':
      sort_by(Order::refused);
      break;
    case kUp:
      --first_;
      break;
    case kDown:
      ++first_;
      break;
    case kPageUp:
      first_ -= page_;
      break;
    case kPageDown:
      first_ += page_;
      break;
    case kHome:
      first_ = 0;
      break;
    case kEnd:
      first_ = 1 << 30;
      break;
    default:
      break;
  }
  return true;
}

}  // namespace fracgpu::tools
