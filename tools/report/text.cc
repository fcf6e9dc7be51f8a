// See text.h.
#include "tools/report/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "tools/cli/plain_text.h"
#include "tools/report/call_sites.h"
#include "tools/report/names.h"
#include "tools/report/refusal_advice.h"
#include "tools/report/units.h"

namespace fracgpu::tools::report {
namespace {

using recording::kNone;

constexpr int kBarColumns = 40, kSmallBarColumns = 20;
constexpr size_t kNameColumns = 100;

std::string shown(const std::string& name) {
  const std::string plain = clean(name.c_str(), name.size());
  return plain.size() > kNameColumns ? plain.substr(0, kNameColumns - 3) + "..." : plain;
}

std::string percent(uint64_t amount, uint64_t whole) {
  return fmt::format("{:.0f}%", std::min(share_of(amount, whole) * 100, 999.0));
}

class Page {
 public:
  Page(const Analysis& analysis, recording::Symbols& symbols, const Style& style,
       const Naming& naming, size_t top)
      : analysis_(analysis),
        names_({&analysis.tables}, symbols, naming),
        style_(style),
        top_(top) {}

  std::string take() {
    beginning();
    for (const DeviceUse& each : analysis_.devices) device(each);
    left();
    churn();
    threads();
    pools();
    refusals();
    notes();
    return std::move(out_);
  }

 private:
  template <typename... Args>
  void line(fmt::format_string<Args...> pattern, Args&&... args) {
    out_ += fmt::format(pattern, std::forward<Args>(args)...) + "\n";
  }
  template <typename... Args>
  void heading(fmt::format_string<Args...> pattern, Args&&... args) {
    line("{}", painted(style_, kDim, fmt::format(pattern, std::forward<Args>(args)...)));
  }
  template <typename... Args>
  void title(fmt::format_string<Args...> pattern, Args&&... args) {
    out_ += "\n";
    line("{}", painted(style_, kBold, fmt::format(pattern, std::forward<Args>(args)...)));
  }
  std::string shown_site(const std::string& name) {
    nameless_ = nameless_ || name.find("+0x") != name.npos;
    return shown(name);
  }
  std::string process(uint32_t index) const { return shown(process_name(analysis_.tables, index)); }

  // The end of a process, if it did not just exit.
  std::string end(uint32_t index) const {
    if (index >= analysis_.processes.size()) return "";
    const ProcessLife& life = analysis_.processes[index];
    return life.ended && life.how != recording::kExited ? ", " + end_of(life.how) : "";
  }

  void beginning();
  void device(const DeviceUse& use);
  void kinds(const Moment& moment);
  void processes(const DeviceUse& use);
  void sizes(const DeviceUse& use);
  void left();
  void churn();
  void threads();
  void pools();
  void refusals();
  void notes();

  const Analysis& analysis_;
  SiteNames names_;
  Style style_;
  size_t top_;
  bool nameless_ = false;  // a function without a name was shown
  std::string out_;
};

void Page::beginning() {
  const recording::Header& header = analysis_.header;
  line("{}", painted(style_, kBold, shown(header.command)));
  line("{}{}, began {}: {}, {}", duration(analysis_.duration_ns),
       header.host.empty() ? "" : " on " + shown(header.host),
       full_moment(header.began_unix_ns / 1'000'000'000),
       count(analysis_.allocations, "allocation"), count(analysis_.releases, "release"));
  if (analysis_.is_span) {
    line("Of this is told what happened from {} to {}.", duration(analysis_.from_ns),
         duration(analysis_.duration_ns));
  }
}

void Page::device(const DeviceUse& use) {
  title("{}", shown(device_name(analysis_.tables, use.device)));
  const Moment& peak = use.peak;
  line("  peak {} at {}{}{}", bytes(peak.sums.taken), duration(peak.time_ns),
       peak.cap == 0 ? "" : fmt::format(", cap {}", bytes(peak.cap)),
       use.cap == peak.cap ? "" : fmt::format("; the last cap was {}", bytes(use.cap)));
  if (peak.cap > 0) {
    line("  {} {:>4}", bar(style_, share_of(peak.sums.taken, peak.cap), kBarColumns),
         percent(peak.sums.taken, peak.cap));
  }
  if (peak.sums.needed < peak.sums.taken) {
    line("  {} of it were needed: pools could have given back {}", bytes(peak.sums.needed),
         bytes(peak.sums.taken - peak.sums.needed));
  }
  line("  at the end {}; the most that the program had at once {}, at {}", bytes(use.at_end.taken),
       bytes(use.live.bytes), duration(use.live.time_ns));
  kinds(peak);
  processes(use);
  sizes(use);
}

void Page::kinds(const Moment& moment) {
  if (moment.parts.empty()) return;
  title("  What the peak was made of");
  std::vector<std::pair<uint64_t, int>> kinds;
  for (int i = 0; i < recording::kMemoryKinds; ++i) {
    const uint64_t amount = moment.by_kind[static_cast<size_t>(i)];
    if (amount > 0) kinds.emplace_back(amount, i);
  }
  std::sort(kinds.rbegin(), kinds.rend());
  for (const auto& [amount, kind] : kinds) {
    const double share = share_of(amount, moment.sums.taken);
    line("  {:>10} {:>4}  {}  {}", bytes(amount), percent(amount, moment.sums.taken),
         bar({style_.utf8, false}, share, kSmallBarColumns),
         kind_name(static_cast<recording::MemoryKind>(kind)));
  }
  out_ += "\n";
  heading("  {:>10} {:>4} {:>9}  {}", "BYTES", "", "COUNT", "CALL SITE");
  for (const CallSite& site : top_of(call_sites(moment.parts, names_), &CallSite::taken, top_)) {
    line("  {:>10} {:>4} {:>9}  {}", bytes(site.taken), percent(site.taken, moment.sums.taken),
         site.count == 0 ? "" : count(site.count), shown_site(site.name));
  }
}

void Page::processes(const DeviceUse& use) {
  title("  Its processes");
  heading("  {:>10} {:>12} {:>10} {:>8}  {}", "PEAK", "AT", "AT END", "REFUSED", "PROCESS");
  size_t lines = 0;
  for (const ProcessUse& each : analysis_.uses) {
    if (each.device != use.device || lines++ >= top_) continue;
    line("  {:>10} {:>12} {:>10} {:>8}  {}{}", bytes(each.taken.bytes),
         duration(each.taken.time_ns), bytes(each.at_end.taken),
         each.refusals == 0 ? "" : count(each.refusals), process(each.process), end(each.process));
  }
}

void Page::sizes(const DeviceUse& use) {
  uint64_t most = 0;
  for (const SizeClass& each : use.sizes) most = std::max(most, each.count);
  if (most == 0) return;
  title("  Sizes of allocations");
  heading("  {:>10} {:>12} {:>10}", "AT LEAST", "COUNT", "BYTES");
  for (size_t i = 0; i < use.sizes.size(); ++i) {
    const SizeClass& each = use.sizes[i];
    if (each.count == 0) continue;
    line("  {:>10} {:>12} {:>10}  {}", bytes(i == 0 ? 0 : uint64_t{1} << i), count(each.count),
         bytes(each.bytes),
         bar({style_.utf8, false}, share_of(each.count, most), kSmallBarColumns));
  }
}

void Page::left() {
  uint64_t bytes_left = 0, count_left = 0;
  for (const Site& each : analysis_.sites) {
    bytes_left += each.left_bytes;
    count_left += each.left_count;
  }
  title("{}: {} in {}",
        analysis_.is_span ? "There at the end of the span" : "Not released at the end",
        bytes(bytes_left), count(count_left, "allocation"));
  if (count_left == 0) return;
  heading("  {:>10} {:>9} {:>12}  {}", "BYTES", "COUNT", "OF ALL", "CALL SITE");
  for (const CallSite& site :
       top_of(call_sites(analysis_.sites, names_), &CallSite::left_bytes, top_)) {
    line("  {:>10} {:>9} {:>12}  {}", bytes(site.left_bytes), count(site.left_count),
         count(site.allocations), shown_site(site.name));
  }
}

void Page::churn() {
  if (analysis_.releases == 0) return;
  title("Who allocates and releases the most");
  heading("  {:>11} {:>10} {:>10} {:>10} {:>10}  {}", "ALLOCATIONS", "PER SECOND", "BYTES",
          "MEAN LIFE", "AT ONCE", "CALL SITE");
  const double seconds =
      std::max(static_cast<double>(analysis_.duration_ns - analysis_.from_ns) / 1e9, 1e-9);
  for (const CallSite& site :
       top_of(call_sites(analysis_.sites, names_), &CallSite::releases, top_)) {
    const auto allocations = static_cast<double>(std::max<uint64_t>(site.allocations, 1));
    line("  {:>11} {:>10.3g} {:>10} {:>10} {:>10}  {}", count(site.allocations),
         allocations / seconds, bytes(site.allocated_bytes),
         duration(static_cast<uint64_t>(site.lifetimes_ns / allocations)), bytes(site.most_live),
         shown_site(site.name));
  }
  line(
      "  Each is two calls of the driver or of a pool. What is freed to no pool waits for the "
      "GPU.");
  line("  Keeping AT ONCE would save them.");
}

// Printed if there are several threads. A thread has a line for each GPU that it used.
void Page::threads() {
  if (analysis_.threads.size() < 2) return;
  const auto on_device = [&](uint32_t device) {
    return analysis_.devices.size() < 2 ? ""
                                        : ", on " + shown(device_name(analysis_.tables, device));
  };
  title("Threads");
  heading("  {:>11} {:>10} {:>11} {:>10} {:>8}  {}", "ALLOCATIONS", "BYTES", "RELEASES", "BYTES",
          "THREAD", "PROCESS");
  for (size_t i = 0; i < std::min(analysis_.threads.size(), top_); ++i) {
    const ThreadUse& each = analysis_.threads[i];
    line("  {:>11} {:>10} {:>11} {:>10} {:>8}  {}{}", count(each.allocations),
         bytes(each.allocated_bytes), count(each.releases), bytes(each.released_bytes),
         each.thread == 0 ? "?" : std::to_string(each.thread), process(each.process),
         on_device(each.device));
  }
}

void Page::pools() {
  if (analysis_.pools.empty()) return;
  title("Pools: what they reserved and nobody used");
  heading("  {:>10} {:>10} {:>10} {:>12} {:>10}  {}", "RESERVED", "USED", "UNUSED", "AT", "PEAK",
          "PROCESS");
  size_t lines = 0;
  for (const Pool& pool : analysis_.pools) {
    if (lines++ >= top_) break;
    line("  {:>10} {:>10} {:>10} {:>12} {:>10}  {}", bytes(pool.worst.reserved),
         bytes(pool.worst.live), bytes(pool.worst.unused()), duration(pool.worst.time_ns),
         bytes(pool.peak.reserved), process(pool.process));
  }
}

void Page::refusals() {
  if (analysis_.refusals_total == 0) return;
  title("Refused: {}", count(analysis_.refusals_total, "request"));
  const size_t told = std::min(analysis_.refusals.size(), top_);
  for (size_t i = 0; i < told; ++i) {
    const Refusal& refusal = analysis_.refusals[i];
    const recording::Event& event = refusal.event;
    const std::string& api = analysis_.tables.texts[event.api];
    line("  At {}, {} asked {} for {}{}.", duration(event.time_ns), process(event.process),
         shown(device_name(analysis_.tables, event.device)), bytes(event.bytes),
         api.empty() ? "" : " by " + shown(api));
    if (event.stack != 0) line("  It came from {}.", shown_site(names_.of(event.stack)));
    if (event.cap != 0) {
      line("  Of the cap of {}, {} were in use.", bytes(event.cap), bytes(event.held));
    }
    const std::vector<std::string> lines = advice(analysis_, refusal);
    if (!lines.empty()) line("  What would have helped:");
    for (const std::string& each : lines) line("  - {}", clean(each.c_str(), each.size()));
  }
  if (analysis_.refusals_total > told) {
    line("  Told are the first {}; --top tells of more.", told);
  }
}

void Page::notes() {
  if (analysis_.dropped > 0 || analysis_.unmatched > 0 || analysis_.header.attached ||
      !analysis_.marks.empty() || nameless_) {
    title("To be known");
  }
  if (nameless_) {
    line(
        "  Functions without a name: install debugging symbols, name a folder that has the "
        "programs "
        "(--symbols), or set DEBUGINFOD_URLS.");
  }
  if (analysis_.dropped > 0) {
    line(
        "  {} missing: they came faster than they could be recorded. Sums are the ledger's from "
        "then on; what they are made of is not certain.",
        count(analysis_.dropped, "event"));
  }
  if (analysis_.unmatched > 0) {
    line("  {} of what was not seen being allocated.", count(analysis_.unmatched, "release"));
  }
  if (analysis_.header.attached) {
    line("  Processes were running when it began: what they had before has no call stack.");
  }
  // What the recorder itself remarked, such as a process that is missing. Never cut.
  for (const Mark& mark : analysis_.marks) {
    if (mark.process == kNone) line("  {}: {}", duration(mark.time_ns), shown(mark.text));
  }
  size_t marks = 0;
  for (const Mark& mark : analysis_.marks) {
    if (mark.process == kNone || marks++ >= top_) continue;
    line("  {}: {}: {}", duration(mark.time_ns), process(mark.process), shown(mark.text));
  }
  if (marks > top_) line("  Showing the first {} of {}; use --top for more.", top_, count(marks));
}

}  // namespace

std::string as_text(const Analysis& analysis, recording::Symbols& symbols, const Style& style,
                    const Naming& naming, size_t top) {
  return Page(analysis, symbols, style, naming, top).take();
}

}  // namespace fracgpu::tools::report
