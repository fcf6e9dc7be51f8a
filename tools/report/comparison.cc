// See comparison.h.
#include "tools/report/comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "tools/cli/json.h"
#include "tools/cli/plain_text.h"
#include "tools/report/call_sites.h"
#include "tools/report/names.h"
#include "tools/report/units.h"
#include "tools/ui/drawing.h"

namespace fracgpu::tools::report {
namespace {

std::vector<Change> changes(const std::vector<CallSite>& before, const std::vector<CallSite>& after,
                            uint64_t CallSite::*number, size_t top) {
  std::map<std::string, Change> by_name;
  for (const CallSite& each : before) by_name[each.name].before += each.*number;
  for (const CallSite& each : after) by_name[each.name].after += each.*number;
  std::vector<Change> all;
  for (auto& [name, change] : by_name) {
    if (change.size() > 0) all.push_back({name, change.before, change.after});
  }
  std::stable_sort(all.begin(), all.end(), [](const Change& one, const Change& other) {
    return one.size() > other.size();
  });
  if (all.size() > top) all.resize(top);
  return all;
}

std::vector<Part> peaks_of(const Analysis& analysis) {
  std::vector<Part> parts;
  for (const DeviceUse& each : analysis.devices) {
    parts.insert(parts.end(), each.peak.parts.begin(), each.peak.parts.end());
  }
  return parts;
}

struct DevicePair {
  const DeviceUse *before, *after;  // null: not used
};

// Pairs each GPU with itself. The others, such as those of another machine, are paired in order.
std::vector<DevicePair> pairs_of(const Analysis& before, const Analysis& after) {
  const auto key = [](const Analysis& analysis, const DeviceUse& use) {
    return use.device == recording::kNone ? "" : analysis.tables.devices[use.device].key;
  };
  std::vector<DevicePair> pairs;
  for (const DeviceUse& each : before.devices) pairs.push_back({&each, nullptr});
  std::vector<const DeviceUse*> others;
  for (const DeviceUse& each : after.devices) {
    const auto same = std::find_if(pairs.begin(), pairs.end(), [&](const DevicePair& pair) {
      return pair.after == nullptr && key(before, *pair.before) == key(after, each);
    });
    if (same != pairs.end()) {
      same->after = &each;
    } else {
      others.push_back(&each);
    }
  }
  for (const DeviceUse* const other : others) {
    const auto alone = std::find_if(pairs.begin(), pairs.end(),
                                    [](const DevicePair& pair) { return pair.after == nullptr; });
    if (alone != pairs.end()) {
      alone->after = other;
    } else {
      pairs.push_back({nullptr, other});
    }
  }
  return pairs;
}

// Both names, if they differ.
std::string name_of(const DevicePair& pair, const Analysis& before, const Analysis& after) {
  std::string name, other;
  if (pair.before != nullptr) name = device_name(before.tables, pair.before->device);
  if (pair.after != nullptr) other = device_name(after.tables, pair.after->device);
  if (name.empty() || name == other) return other;
  return other.empty() ? name : name + ", then " + other;
}

using Amount = std::string (*)(uint64_t);

std::string number(uint64_t amount) {
  return count(amount);
}

std::string row(const Change& change, Amount amount) {
  const std::string sign = change.after > change.before ? "+" : "-";
  return fmt::format("  {:>12} {:>12} {:>12}  {}\n", amount(change.before), amount(change.after),
                     change.size() == 0 ? "" : sign + amount(change.size()), change.name);
}

std::string table(const char* title, const std::vector<Change>& changes, Amount amount) {
  if (changes.empty()) return fmt::format("\n{}: no change\n", title);
  std::string text = fmt::format("\n{}\n", title);
  for (const Change& each : changes) text += row(each, amount);
  return text;
}

Json json_of(const Change& change) {
  return {{"before", change.before}, {"after", change.after}};
}

Json json_of(const std::vector<Change>& changes) {
  Json all = Json::array();
  for (const Change& each : changes) {
    all.push_back({{"call_site", each.name}, {"before", each.before}, {"after", each.after}});
  }
  return all;
}

}  // namespace

Comparison compare(const Analysis& before, const Analysis& after, recording::Symbols& symbols,
                   const Naming& naming, size_t top) {
  Comparison result;
  result.duration_ns = {"duration", before.duration_ns, after.duration_ns};
  result.totals = {{"allocations", before.allocations, after.allocations},
                   {"releases", before.releases, after.releases},
                   {"refusals", before.refusals_total, after.refusals_total}};
  const DeviceUse none;
  for (const DevicePair& pair : pairs_of(before, after)) {
    const DeviceUse& one = pair.before != nullptr ? *pair.before : none;
    const DeviceUse& other = pair.after != nullptr ? *pair.after : none;
    result.devices.push_back({name_of(pair, before, after),
                              {"peak", one.taken.bytes, other.taken.bytes},
                              {"most live", one.live.bytes, other.live.bytes},
                              {"most needed", one.needed.bytes, other.needed.bytes},
                              {"at the end", one.at_end.taken, other.at_end.taken},
                              {"refusals", one.refusals, other.refusals}});
  }
  SiteNames names({&before.tables, &after.tables}, symbols, naming);
  result.at_peak = changes(call_sites(peaks_of(before), names),
                           call_sites(peaks_of(after), names, 1), &CallSite::taken, top);
  const std::vector<CallSite> sites = call_sites(before.sites, names);
  const std::vector<CallSite> other_sites = call_sites(after.sites, names, 1);
  result.left = changes(sites, other_sites, &CallSite::left_bytes, top);
  result.allocated_bytes = changes(sites, other_sites, &CallSite::allocated_bytes, top);
  result.allocations = changes(sites, other_sites, &CallSite::allocations, top);
  return result;
}

std::string as_text(const Comparison& comparison) {
  std::string text = fmt::format("  {:>12} {:>12} {:>12}\n", "FIRST", "SECOND", "CHANGE");
  text += row(comparison.duration_ns, duration);
  for (const Change& each : comparison.totals) text += row(each, number);
  for (const DeviceChange& each : comparison.devices) {
    text += fmt::format("\n{}\n", clean(each.name.c_str(), each.name.size()));
    for (const Change* of_bytes : {&each.taken, &each.needed, &each.live, &each.at_end}) {
      text += row(*of_bytes, bytes);
    }
    text += row(each.refusals, number);
  }
  return text + table("At the peak, by call site", comparison.at_peak, bytes) +
         table("Not released at the end", comparison.left, bytes) +
         table("Allocated over all time", comparison.allocated_bytes, bytes) +
         table("Number of allocations", comparison.allocations, number);
}

std::string as_json(const Comparison& comparison) {
  Json devices = Json::array(), totals = Json::object();
  for (const Change& each : comparison.totals) totals[each.name] = json_of(each);
  for (const DeviceChange& each : comparison.devices) {
    devices.push_back({{"name", each.name},
                       {"taken", json_of(each.taken)},
                       {"live", json_of(each.live)},
                       {"needed", json_of(each.needed)},
                       {"at_end", json_of(each.at_end)},
                       {"refusals", json_of(each.refusals)}});
  }
  const Json json{{"duration_ns", json_of(comparison.duration_ns)},
                  {"totals", totals},
                  {"devices", devices},
                  {"at_peak", json_of(comparison.at_peak)},
                  {"left", json_of(comparison.left)},
                  {"allocated_bytes", json_of(comparison.allocated_bytes)},
                  {"allocations", json_of(comparison.allocations)}};
  return json.dump_ascii(2) + "\n";
}

}  // namespace fracgpu::tools::report
