// See page_data.h.
#include "tools/report/page_data.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tools/report/names.h"
#include "tools/report/page_series.h"
#include "tools/report/page_stacks.h"
#include "tools/report/refusal_advice.h"

namespace fracgpu::tools::report {
namespace {

using recording::MemoryKind;

constexpr size_t kMostPeakParts = 4000, kMostMomentParts = 300, kMostSites = 10'000;
constexpr size_t kMostRefusalsShown = 1000;

// The stack number of entries that were too small for the list.
constexpr int kSmaller = -1;

int number_of(MemoryKind kind) {
  return static_cast<int>(kind);
}

// For each part its process, kind, stack, bytes and count, one after another.
Json parts(const Moment& moment, size_t most, PageStacks& stacks) {
  Json list = Json::array();
  const auto add = [&](uint32_t process, MemoryKind kind, Json stack, uint64_t taken,
                       uint64_t count) {
    for (Json each : {Json(process), Json(number_of(kind)), stack, Json(taken), Json(count)}) {
      list.push_back(std::move(each));
    }
  };
  std::map<std::pair<uint32_t, MemoryKind>, std::pair<uint64_t, uint64_t>> smaller;
  size_t listed = 0;
  for (const Part& part : moment.parts) {
    if (part.taken == 0) continue;
    if (listed++ < most) {
      add(part.process, part.kind, stacks.node(part.stack), part.taken, part.count);
    } else {
      auto& [taken, count] = smaller[{part.process, part.kind}];
      taken += part.taken;
      count += part.count;
    }
  }
  for (const auto& [what, sum] : smaller) {
    add(what.first, what.second, kSmaller, sum.first, sum.second);
  }
  return list;
}

Json device_data(const Analysis& analysis, const DeviceUse& use, PageStacks& stacks) {
  Json device = series(use);
  device["device"] = use.device;
  device["name"] = device_name(analysis.tables, use.device);
  const bool known = use.device < analysis.tables.devices.size();
  device["physical"] = known ? analysis.tables.devices[use.device].physical : 0;
  device["cap"] = use.peak.cap;
  device["peak"] = use.taken.bytes;
  device["peak_ns"] = use.peak.time_ns;
  device["most_live"] = use.live.bytes;
  device["most_needed"] = use.needed.bytes;
  device["refusals"] = use.refusals;
  device["peak_parts"] = parts(use.peak, kMostPeakParts, stacks);
  Json moments = Json::array(), sizes = Json::array();
  for (const Moment& each : use.moments) {
    moments.push_back({{"ns", each.time_ns}, {"parts", parts(each, kMostMomentParts, stacks)}});
  }
  for (size_t i = 0; i < use.sizes.size(); ++i) {
    const SizeClass& size = use.sizes[i];
    if (size.count != 0) sizes.push_back(Json::array({i, size.count, size.bytes}));
  }
  device["moments"] = std::move(moments);
  device["sizes"] = std::move(sizes);
  return device;
}

Json site_data(const Site& site, Json stack, const std::string& name) {
  return {{"process", site.process},
          {"device", site.device},
          {"kind", number_of(site.kind)},
          {"stack", std::move(stack)},
          {"site", name},
          {"allocations", site.allocations},
          {"allocated", site.allocated_bytes},
          {"left_count", site.left_count},
          {"left", site.left_bytes},
          {"most_live", site.most_live},
          {"lifetime_ns", site.mean_lifetime_ns}};
}

// The call sites with the most bytes live at once, left or allocated. The rest is added up.
Json sites(const Analysis& analysis, PageStacks& stacks, SiteNames& names) {
  std::vector<const Site*> order;
  for (const Site& site : analysis.sites) order.push_back(&site);
  const auto weight = [](const Site* site) {
    return std::max({site->most_live, site->left_bytes, site->allocated_bytes / 64});
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const Site* a, const Site* b) { return weight(a) > weight(b); });
  Json list = Json::array();
  std::map<std::tuple<uint32_t, uint32_t, MemoryKind>, Site> smaller;
  for (size_t i = 0; i < order.size(); ++i) {
    const Site& site = *order[i];
    if (i < kMostSites) {
      list.push_back(site_data(site, stacks.node(site.stack), names.of(site.stack)));
      continue;
    }
    Site& sum = smaller[{site.process, site.device, site.kind}];
    sum.process = site.process;
    sum.device = site.device;
    sum.kind = site.kind;
    sum.allocations += site.allocations;
    sum.allocated_bytes += site.allocated_bytes;
    sum.left_count += site.left_count;
    sum.left_bytes += site.left_bytes;
    sum.most_live = std::max(sum.most_live, site.most_live);
  }
  for (const auto& [what, sum] : smaller) {
    list.push_back(site_data(sum, kSmaller, "(smaller call sites)"));
  }
  return list;
}

Json uses(const Analysis& analysis) {
  Json list = Json::array();
  for (const ProcessUse& use : analysis.uses) {
    list.push_back({{"process", use.process},
                    {"device", use.device},
                    {"taken", use.taken.bytes},
                    {"taken_ns", use.taken.time_ns},
                    {"live", use.live.bytes},
                    {"needed", use.needed.bytes},
                    {"end", use.at_end.taken},
                    {"refusals", use.refusals}});
  }
  return list;
}

Json threads(const Analysis& analysis) {
  Json list = Json::array();
  for (const ThreadUse& each : analysis.threads) {
    list.push_back({{"process", each.process},
                    {"device", each.device},
                    {"thread", each.thread},
                    {"allocations", each.allocations},
                    {"allocated", each.allocated_bytes},
                    {"releases", each.releases},
                    {"released", each.released_bytes}});
  }
  return list;
}

Json pools(const Analysis& analysis) {
  Json list = Json::array();
  for (const Pool& pool : analysis.pools) {
    list.push_back({{"process", pool.process},
                    {"device", pool.device},
                    {"owner", fmt::format("{:#x}", pool.owner)},
                    {"peak", pool.peak.reserved},
                    {"unused", pool.worst.unused()},
                    {"worst_ns", pool.worst.time_ns},
                    {"end_reserved", pool.at_end.reserved},
                    {"end_live", pool.at_end.live},
                    {"allocations", pool.allocations}});
  }
  return list;
}

std::string text_of(const Analysis& analysis, uint32_t text) {
  return text < analysis.tables.texts.size() ? analysis.tables.texts[text] : "";
}

Json refusals(const Analysis& analysis) {
  Json list = Json::array();
  for (const Refusal& refusal : analysis.refusals) {
    if (list.items().size() == kMostRefusalsShown) break;
    const recording::Event& event = refusal.event;
    std::string helps;
    for (const std::string& each : advice(analysis, refusal)) {
      helps += (helps.empty() ? "" : "; or ") + each;
    }
    list.push_back({{"ns", event.time_ns},
                    {"process", event.process},
                    {"device", event.device},
                    {"api", text_of(analysis, event.api)},
                    {"reason", static_cast<int>(event.reason)},
                    {"asked", event.bytes},
                    {"held", event.held},
                    {"cap", event.cap},
                    {"advice", helps}});
  }
  return list;
}

Json processes(const Analysis& analysis) {
  Json list = Json::array();
  for (uint32_t i = 0; i < analysis.tables.processes.size(); ++i) {
    std::string end;
    if (i < analysis.processes.size() && analysis.processes[i].ended) {
      end = end_of(analysis.processes[i].how);
    }
    list.push_back({{"name", process_name(analysis.tables, i)}, {"end", end}});
  }
  return list;
}

}  // namespace

Json page_data(const Analysis& analysis, recording::Symbols& symbols, const Naming& naming) {
  PageStacks stacks(analysis.tables, symbols);
  SiteNames names({&analysis.tables}, symbols, naming);
  Json kinds = Json::array(), devices = Json::array(), marks = Json::array();
  for (int kind = 0; kind < recording::kMemoryKinds; ++kind) {
    kinds.push_back(kind_name(static_cast<MemoryKind>(kind)));
  }
  for (const DeviceUse& use : analysis.devices) {
    devices.push_back(device_data(analysis, use, stacks));
  }
  for (const Mark& each : analysis.marks) {
    marks.push_back({{"ns", each.time_ns}, {"process", each.process}, {"text", each.text}});
  }
  Json data = {{"command", analysis.header.command},
               {"host", analysis.header.host},
               {"began_ms", analysis.header.began_unix_ns / 1'000'000},
               {"stacks", analysis.header.stacks},
               {"attached", analysis.header.attached},
               {"from_ns", analysis.from_ns},
               {"duration_ns", analysis.duration_ns},
               {"events", analysis.events},
               {"dropped", analysis.dropped},
               {"damage", analysis.damage},
               {"kinds", std::move(kinds)},
               {"processes", processes(analysis)},
               {"devices", std::move(devices)},
               {"sites", sites(analysis, stacks, names)},
               {"uses", uses(analysis)},
               {"threads", threads(analysis)},
               {"pools", pools(analysis)},
               {"refusals", refusals(analysis)},
               {"marks", std::move(marks)}};
  // These come after all code that adds stacks.
  data["nodes"] = stacks.nodes();
  data["frames"] = stacks.frames();
  data["texts"] = stacks.texts();
  return data;
}

}  // namespace fracgpu::tools::report
