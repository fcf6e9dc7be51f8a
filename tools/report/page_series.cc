#include "tools/report/page_series.h"

#include <algorithm>
#include <map>
#include <vector>

namespace fracgpu::tools::report {
namespace {

using recording::MemoryKind;

// From the bottom: permanent memory, requested memory, unused memory.
constexpr MemoryKind kOrder[] = {
    MemoryKind::overhead, MemoryKind::code,     MemoryKind::linear,   MemoryKind::managed,
    MemoryKind::array,    MemoryKind::physical, MemoryKind::chunks,   MemoryKind::graph,
    MemoryKind::pool,     MemoryKind::reserved, MemoryKind::imported, MemoryKind::unknown,
};

// More colours could not be distinguished.
constexpr size_t kMostProcesses = 9;

template <typename Get>
Json list(const DeviceUse& use, Get get) {
  Json values = Json::array();
  for (const Point& point : use.timeline) values.push_back(get(point));
  return values;
}

Json by_kind(const DeviceUse& use) {
  Json kinds = Json::array();
  for (const MemoryKind kind : kOrder) {
    const size_t index = static_cast<size_t>(kind);
    const bool any = std::any_of(use.timeline.begin(), use.timeline.end(),
                                 [&](const Point& point) { return point.by_kind[index] != 0; });
    if (!any) continue;
    kinds.push_back(
        Json::array({index, list(use, [&](const Point& point) { return point.by_kind[index]; })}));
  }
  return kinds;
}

Json by_process(const DeviceUse& use) {
  std::map<uint32_t, std::vector<uint64_t>> of_process;
  for (size_t i = 0; i < use.timeline.size(); ++i) {
    for (const ProcessShare& share : use.timeline[i].by_process) {
      auto& values = of_process[share.process];
      values.resize(use.timeline.size());
      values[i] += share.taken;
    }
  }
  std::vector<std::pair<uint64_t, uint32_t>> order;
  for (const auto& [process, values] : of_process) {
    order.emplace_back(*std::max_element(values.begin(), values.end()), process);
  }
  std::sort(order.rbegin(), order.rend());
  std::vector<uint64_t> others(use.timeline.size());
  Json processes = Json::array();
  for (size_t i = 0; i < order.size(); ++i) {
    const std::vector<uint64_t>& values = of_process[order[i].second];
    if (i < kMostProcesses) {
      Json numbers = Json::array();
      for (const uint64_t each : values) numbers.push_back(each);
      processes.push_back(Json::array({order[i].second, std::move(numbers)}));
    } else {
      for (size_t at = 0; at < values.size(); ++at) others[at] += values[at];
    }
  }
  if (order.size() <= kMostProcesses) return processes;
  Json numbers = Json::array();
  for (const uint64_t each : others) numbers.push_back(each);
  processes.push_back(Json::array({-1, std::move(numbers)}));
  return processes;
}

}  // namespace

Json series(const DeviceUse& use) {
  return {{"times", list(use, [](const Point& point) { return point.time_ns; })},
          {"caps", list(use, [](const Point& point) { return point.cap; })},
          {"live", list(use, [](const Point& point) { return point.sums.live; })},
          {"kinds", by_kind(use)},
          {"by_process", by_process(use)}};
}

}  // namespace fracgpu::tools::report
