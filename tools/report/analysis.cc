// See analysis.h. memory_events.cc applies events.
#include "tools/report/analysis.h"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>

#include "shim/base/text.h"
#include "tools/cli/plain_text.h"
#include "tools/report/memory.h"
#include "tools/report/names.h"
#include "tools/report/units.h"

namespace fracgpu::tools::report {
namespace {

using recording::Event;
using recording::EventType;
using recording::kNone;
using recording::Tables;

bool is_chosen(const recording::DeviceInfo& device, uint32_t index, const std::string& choice) {
  const std::string number = "GPU " + choice;
  return device.key.starts_with(choice) || device.name == number ||
         device.name.starts_with(number + " ") ||
         (device.name.empty() && std::to_string(index) == choice);
}

bool is_chosen(const recording::ProcessInfo& process, uint32_t, const std::string& choice) {
  return process.command == choice || std::to_string(process.pid) == choice ||
         (process.host_pid != 0 && std::to_string(process.host_pid) == choice);
}

// Whether an entry of a table is chosen. Computed once for each entry, because there are many
// events.
template <typename Entry>
class Chosen {
 public:
  explicit Chosen(const std::string& choice) : choice_(choice) {}

  bool operator()(uint32_t index, const std::vector<Entry>& entries) {
    if (choice_.empty()) return true;
    if (index == kNone) return false;
    while (known_.size() <= index) {
      const auto next = static_cast<uint32_t>(known_.size());
      known_.push_back(is_chosen(entries[next], next, choice_));
    }
    return known_[index];
  }

  // Throws if no entry is chosen.
  void check(const std::vector<Entry>& entries, const char* what, const std::string& there) {
    for (uint32_t i = 0; i < entries.size(); ++i) {
      if ((*this)(i, entries)) return;
    }
    if (choice_.empty()) return;
    throw std::runtime_error(fmt::format("there is no {} {} in the recording; there {}", what,
                                         fracgpu::quoted(choice_).view(),
                                         there.empty() ? "is none" : "are: " + there));
  }

 private:
  const std::string& choice_;
  std::vector<bool> known_;
};

bool is_of_all_processes(const Event& event) {
  return event.type == EventType::cap;
}

bool is_of_all_devices(const Event& event) {
  return event.type == EventType::dropped || event.type == EventType::ended ||
         event.type == EventType::mark;
}

// The first few entries, for one line.
template <typename Entry>
std::string some(const Tables& tables, const std::vector<Entry>& entries,
                 std::string (*name)(const Tables&, uint32_t)) {
  constexpr size_t kShown = 8;
  std::string text;
  for (uint32_t i = 0; i < std::min(entries.size(), kShown); ++i) {
    text += (i == 0 ? "" : ", ") + name(tables, i);
  }
  if (entries.size() > kShown) text += ", ...";
  return clean(text.c_str(), text.size());
}

void sort(Analysis& analysis) {
  std::sort(analysis.devices.begin(), analysis.devices.end(),
            [](const DeviceUse& one, const DeviceUse& other) { return one.device < other.device; });
  std::stable_sort(analysis.uses.begin(), analysis.uses.end(),
                   [](const ProcessUse& one, const ProcessUse& other) {
                     return one.taken.bytes > other.taken.bytes;
                   });
  std::stable_sort(analysis.sites.begin(), analysis.sites.end(),
                   [](const Site& one, const Site& other) {
                     return std::tuple(one.allocated_bytes, one.allocations) >
                            std::tuple(other.allocated_bytes, other.allocations);
                   });
  std::sort(analysis.threads.begin(), analysis.threads.end(),
            [](const ThreadUse& one, const ThreadUse& other) {
              return std::tuple(other.allocated_bytes, one.process, one.device, one.thread) <
                     std::tuple(one.allocated_bytes, other.process, other.device, other.thread);
            });
  std::sort(analysis.pools.begin(), analysis.pools.end(), [](const Pool& one, const Pool& other) {
    return std::tuple(other.worst.unused(), other.peak.reserved, one.process, one.owner) <
           std::tuple(one.worst.unused(), one.peak.reserved, other.process, other.owner);
  });
}

}  // namespace

Analysis analyse(recording::Reader& reader, const Choice& choice) {
  Analysis analysis;
  Chosen<recording::DeviceInfo> device(choice.device);
  Chosen<recording::ProcessInfo> process(choice.process);
  Memory memory(choice, reader.tables());
  uint64_t last_ns = 0;
  bool has_begun = choice.from_ns == 0;
  const auto begin = [&] {
    if (!has_begun) memory.begin_span(choice.from_ns);
    has_begun = true;
  };
  reader.for_each([&](const Event& event, const Tables& tables) {
    last_ns = std::max(last_ns, event.time_ns);
    if (event.time_ns >= choice.from_ns) begin();
    if (event.time_ns > choice.to_ns) return;
    if ((is_of_all_processes(event) || process(event.process, tables.processes)) &&
        (is_of_all_devices(event) || device(event.device, tables.devices))) {
      memory.apply(event);
    }
  });
  const Tables& tables = reader.tables();
  device.check(tables.devices, "GPU", some(tables, tables.devices, device_name));
  process.check(tables.processes, "process", some(tables, tables.processes, process_name));
  if (!has_begun) {
    throw std::runtime_error(fmt::format("the recording ends at {}: there is nothing from {} on",
                                         duration(last_ns), duration(choice.from_ns)));
  }
  memory.end_span(std::min(last_ns, choice.to_ns));
  memory.finish(analysis);
  analysis.is_span = choice.from_ns > 0 || choice.to_ns < last_ns;
  analysis.header = reader.header();
  analysis.tables = tables;
  analysis.damage = reader.damage();
  sort(analysis);
  return analysis;
}

}  // namespace fracgpu::tools::report
