// A span of a recording. All events before the span determine the memory at its beginning; see
// memory.h.
#include <algorithm>

#include "tools/report/memory.h"

namespace fracgpu::tools::report {

void Memory::begin_span(uint64_t time_ns) {
  from_ns_ = now_ns_ = time_ns;
  for (DeviceState& device : devices_) {
    const uint64_t cap = device.use.cap;
    const uint32_t number = device.use.device;
    device.use = {};
    device.use.device = number;
    device.use.cap = cap;
    device.use.live = {device.now.live, time_ns};
    device.use.needed = {device.now.needed, time_ns};
    device.points = Timeline<Point>(choice_.points);
    device.moments = Timeline<Moment>(choice_.moments);
    see(device, device.point, time_ns);
    see(device, device.moment, time_ns);
    device.point.end_ns = device.points.end_of(time_ns);
    device.moment.end_ns = device.moments.end_of(time_ns);
  }
  for (Cell& cell : cells_) {
    cell.carried = cell.now.count;
    cell.most_live = cell.now.live;
    cell.lifetimes_ns = 0 - static_cast<double>(cell.now.count) * static_cast<double>(time_ns);
    cell.allocations = cell.allocated_bytes = cell.releases = 0;
    cell.left_count = cell.left_bytes = cell.temporary_count = cell.temporary_bytes = 0;
  }
  for (UseState& each : uses_) {
    ProcessUse use;
    use.process = each.use.process;
    use.device = each.use.device;
    use.live = {each.now.live, time_ns};
    use.needed = {each.now.needed, time_ns};
    use.peak.sums = each.now;
    use.peak.time_ns = time_ns;
    each.use = use;
    ++each.moment;
    each.threads.clear();
    each.last_thread = nullptr;
    each.last_address = 0;
    for (auto& [owner, state] : each.pools) {
      state.pool.peak = state.pool.at_end = {time_ns, state.reserved, state.live};
      state.pool.worst = {};
      state.pool.allocations = state.pool.allocated_bytes = 0;
    }
  }
  ended_pools_.clear();
  refusals_.clear();
  marks_.clear();
  events_ = allocations_ = releases_ = refusals_total_ = dropped_ = unmatched_ = 0;
}

void Memory::end_span(uint64_t time_ns) {
  now_ns_ = std::max(now_ns_, time_ns);
}

}  // namespace fracgpu::tools::report
