// See json.h.
#include "tools/report/json.h"

#include <set>
#include <vector>

#include "tools/cli/json.h"
#include "tools/report/names.h"
#include "tools/report/refusal_advice.h"

namespace fracgpu::tools::report {
namespace {

using recording::kNone;

// An index into one of the lists; null for kNone.
Json index_json(uint32_t index) {
  return index == kNone ? Json() : Json(index);
}

Json json_of(const Peak& peak) {
  return {{"bytes", peak.bytes}, {"time_ns", peak.time_ns}};
}

Json json_of(const Sums& sums) {
  return {{"taken", sums.taken}, {"live", sums.live}, {"needed", sums.needed}};
}

Json json_of(const ByKind& kinds) {
  Json json = Json::object();
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] > 0) json[kind_key(static_cast<recording::MemoryKind>(i))] = kinds[i];
  }
  return json;
}

class Page {
 public:
  Page(const Analysis& analysis, recording::Symbols& symbols)
      : analysis_(analysis), symbols_(symbols) {}

  Json take() {
    Json devices = Json::array(), uses = Json::array(), sites = Json::array(),
         pools = Json::array(), refusals = Json::array(), marks = Json::array();
    for (const DeviceUse& each : analysis_.devices) devices.push_back(device(each));
    for (const ProcessUse& each : analysis_.uses) uses.push_back(use(each));
    for (const Site& each : analysis_.sites) sites.push_back(site(each));
    for (const Pool& each : analysis_.pools) pools.push_back(pool(each));
    for (const Refusal& each : analysis_.refusals) refusals.push_back(refusal(each));
    for (const Mark& each : analysis_.marks) {
      marks.push_back(
          {{"time_ns", each.time_ns}, {"process", index_json(each.process)}, {"text", each.text}});
    }
    return {{"recording", recording()}, {"processes", processes()},
            {"devices", devices},       {"uses", uses},
            {"call_sites", sites},      {"threads", threads()},
            {"pools", pools},           {"refusals", refusals},
            {"marks", marks},           {"stacks", stacks()}};
  }

 private:
  Json recording() const {
    const recording::Header& header = analysis_.header;
    return {{"command", header.command},
            {"host", header.host},
            {"tool_version", header.tool_version},
            {"began_unix_ns", header.began_unix_ns},
            {"from_ns", analysis_.from_ns},
            {"duration_ns", analysis_.duration_ns},
            {"events", analysis_.events},
            {"allocations", analysis_.allocations},
            {"releases", analysis_.releases},
            {"refusals", analysis_.refusals_total},
            {"dropped_events", analysis_.dropped},
            {"unmatched_releases", analysis_.unmatched},
            {"attached", header.attached},
            {"damage", analysis_.damage.empty() ? Json() : Json(analysis_.damage)}};
  }

  Json processes() const {
    Json all = Json::array();
    for (size_t i = 0; i < analysis_.processes.size(); ++i) {
      const recording::ProcessInfo& info = analysis_.tables.processes[i];
      const ProcessLife& life = analysis_.processes[i];
      all.push_back({{"pid", info.pid},
                     {"host_pid", info.host_pid},
                     {"command", info.command},
                     {"began_ns", info.began_ns},
                     {"ended_ns", life.ended ? Json(life.ended_ns) : Json()},
                     {"exited", life.ended && life.how == recording::kExited},
                     {"end", life.ended ? Json(end_of(life.how)) : Json()},
                     {"dropped_events", life.dropped}});
    }
    return all;
  }

  Json moment(const Moment& moment) {
    Json parts = Json::array();
    for (const Part& part : moment.parts) {
      parts.push_back({{"process", index_json(part.process)},
                       {"kind", kind_key(part.kind)},
                       {"stack", stack(part.stack)},
                       {"taken", part.taken},
                       {"live", part.live},
                       {"count", part.count}});
    }
    return {{"time_ns", moment.time_ns},
            {"sums", json_of(moment.sums)},
            {"by_kind", json_of(moment.by_kind)},
            {"parts", parts}};
  }

  Json device(const DeviceUse& use) {
    Json timeline = Json::array(), sizes = Json::array();
    for (const Point& point : use.timeline) {
      timeline.push_back({{"time_ns", point.time_ns},
                          {"sums", json_of(point.sums)},
                          {"by_kind", json_of(point.by_kind)},
                          {"cap", point.cap}});
    }
    for (size_t i = 0; i < use.sizes.size(); ++i) {
      if (use.sizes[i].count == 0) continue;
      sizes.push_back({{"at_least", i == 0 ? 0 : uint64_t{1} << i},
                       {"count", use.sizes[i].count},
                       {"bytes", use.sizes[i].bytes}});
    }
    const bool known = use.device != kNone;
    const recording::DeviceInfo info =
        known ? analysis_.tables.devices[use.device] : recording::DeviceInfo{};
    return {{"index", index_json(use.device)},
            {"key", info.key},
            {"name", device_name(analysis_.tables, use.device)},
            {"physical", info.physical},
            {"cap", use.cap},
            {"cap_at_peak", use.peak.cap},
            {"taken", json_of(use.taken)},
            {"live", json_of(use.live)},
            {"needed", json_of(use.needed)},
            {"at_end", json_of(use.at_end)},
            {"refusals", use.refusals},
            {"peak", moment(use.peak)},
            {"sizes", sizes},
            {"timeline", timeline}};
  }

  Json use(const ProcessUse& use) {
    return {{"process", index_json(use.process)}, {"device", index_json(use.device)},
            {"taken", json_of(use.taken)},        {"live", json_of(use.live)},
            {"needed", json_of(use.needed)},      {"at_end", json_of(use.at_end)},
            {"refusals", use.refusals},           {"peak", moment(use.peak)}};
  }

  Json site(const Site& site) {
    return {{"process", index_json(site.process)},
            {"device", index_json(site.device)},
            {"kind", kind_key(site.kind)},
            {"stack", stack(site.stack)},
            {"allocations", site.allocations},
            {"allocated_bytes", site.allocated_bytes},
            {"releases", site.releases},
            {"left_count", site.left_count},
            {"left_bytes", site.left_bytes},
            {"temporary_count", site.temporary_count},
            {"temporary_bytes", site.temporary_bytes},
            {"most_live", site.most_live},
            {"mean_lifetime_ns", site.mean_lifetime_ns}};
  }

  Json threads() const {
    Json all = Json::array();
    for (const ThreadUse& each : analysis_.threads) {
      all.push_back({{"process", index_json(each.process)},
                     {"device", index_json(each.device)},
                     {"thread", each.thread},
                     {"allocations", each.allocations},
                     {"allocated_bytes", each.allocated_bytes},
                     {"releases", each.releases},
                     {"released_bytes", each.released_bytes}});
    }
    return all;
  }

  static Json look(const Pool::Look& look) {
    return {{"time_ns", look.time_ns}, {"reserved", look.reserved}, {"live", look.live}};
  }

  static Json pool(const Pool& pool) {
    return {{"process", index_json(pool.process)},
            {"device", index_json(pool.device)},
            {"owner", pool.owner},
            {"peak", look(pool.peak)},
            {"worst", look(pool.worst)},
            {"at_end", look(pool.at_end)},
            {"allocations", pool.allocations},
            {"allocated_bytes", pool.allocated_bytes}};
  }

  Json refusal(const Refusal& refusal) {
    static constexpr const char* kReasons[] = {"cap", "driver", "runtime", "ledger"};
    const recording::Event& event = refusal.event;
    return {{"time_ns", event.time_ns},
            {"process", index_json(event.process)},
            {"device", index_json(event.device)},
            {"api", analysis_.tables.texts[event.api]},
            {"stack", stack(event.stack)},
            {"reason", kReasons[static_cast<size_t>(event.reason)]},
            {"asked", event.bytes},
            {"needed", event.taken},
            {"held", event.held},
            {"cap", event.cap},
            {"advice", Json::array(advice(analysis_, refusal))}};
  }

  // Records the stack's number: only stacks with a reference are printed.
  uint32_t stack(uint32_t number) {
    stacks_.insert(number);
    return number;
  }

  Json stacks() {
    Json all = Json::array();
    for (const uint32_t number : stacks_) {
      all.push_back({{"stack", number},
                     {"functions", Json::array(stack_names(analysis_.tables, number, symbols_))}});
    }
    return all;
  }

  const Analysis& analysis_;
  recording::Symbols& symbols_;
  std::set<uint32_t> stacks_;
};

}  // namespace

std::string as_json(const Analysis& analysis, recording::Symbols& symbols) {
  return Page(analysis, symbols).take().dump_ascii(2) + "\n";
}

}  // namespace fracgpu::tools::report
