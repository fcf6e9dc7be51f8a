// See perfetto.h.
#include "tools/report/perfetto.h"

#include <fmt/core.h>

#include <set>

#include "tools/cli/json.h"
#include "tools/report/names.h"

namespace fracgpu::tools::report {
namespace {

using recording::MemoryKind;

// The trace's processes are the GPUs, followed by the recorded processes. Their PIDs are not used,
// because they are not unique in a recording of several PID namespaces.
class Trace {
 public:
  explicit Trace(const Analysis& analysis) : analysis_(analysis) {}

  std::string take() {
    for (size_t i = 0; i < analysis_.devices.size(); ++i) device(analysis_.devices[i], i + 1);
    for (const Refusal& each : analysis_.refusals) refusal(each);
    for (const Mark& each : analysis_.marks) {
      event("i", process_track(each.process), each.time_ns, each.text, {{"s", "p"}});
    }
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + events_ + "\n]}\n";
  }

 private:
  using Members = std::initializer_list<Json::Member>;

  // Printed one by one: as a single value, they would take ten times the memory.
  void event(const char* phase, uint64_t track, uint64_t time_ns, const std::string& name,
             Members more) {
    Json event{{"ph", phase}, {"pid", track}, {"tid", 0}, {"name", name}};
    event["ts"] = static_cast<double>(time_ns) / 1e3;
    for (const Json::Member& each : more) event[each.key] = each.value;
    events_ += (events_.empty() ? "" : ",\n") + event.dump_ascii(-1);
  }

  void name_track(uint64_t track, const std::string& name) {
    event("M", track, 0, "process_name", {{"args", Json{{"name", name}}}});
  }

  uint64_t process_track(uint32_t process) {
    const uint64_t track = process == recording::kNone ? 0 : analysis_.devices.size() + 1 + process;
    if (named_.insert(track).second) name_track(track, process_name(analysis_.tables, process));
    return track;
  }

  void counter(uint64_t track, uint64_t time_ns, const std::string& name, uint64_t bytes) {
    event("C", track, time_ns, name, {{"args", Json{{"bytes", bytes}}}});
  }

  void device(const DeviceUse& use, uint64_t track) {
    const std::string name = device_name(analysis_.tables, use.device);
    name_track(track, name);
    std::set<size_t> kinds;
    std::set<uint32_t> processes;
    for (const Point& point : use.timeline) {
      counter(track, point.time_ns, "taken", point.sums.taken);
      counter(track, point.time_ns, "needed", point.sums.needed);
      if (point.cap != 0) counter(track, point.time_ns, "cap", point.cap);
      for (size_t i = 0; i < point.by_kind.size(); ++i) {
        if (point.by_kind[i] == 0 && !kinds.contains(i)) continue;
        kinds.insert(i);
        counter(track, point.time_ns, kind_name(static_cast<MemoryKind>(i)), point.by_kind[i]);
      }
      // A process that is gone gets the value 0 once.
      std::set<uint32_t> gone = processes;
      for (const ProcessShare& each : point.by_process) {
        counter(process_track(each.process), point.time_ns, name, each.taken);
        gone.erase(each.process);
        processes.insert(each.process);
      }
      for (const uint32_t process : gone) {
        counter(process_track(process), point.time_ns, name, 0);
        processes.erase(process);
      }
    }
  }

  void refusal(const Refusal& refusal) {
    const recording::Event& at = refusal.event;
    event("i", process_track(at.process), at.time_ns, "refused",
          {{"s", "p"},
           {"args", Json{{"asked", at.bytes},
                         {"held", at.held},
                         {"cap", at.cap},
                         {"api", analysis_.tables.texts[at.api]},
                         {"gpu", device_name(analysis_.tables, at.device)}}}});
  }

  const Analysis& analysis_;
  std::string events_;
  std::set<uint64_t> named_;
};

}  // namespace

std::string as_perfetto(const Analysis& analysis) {
  return Trace(analysis).take();
}

}  // namespace fracgpu::tools::report
