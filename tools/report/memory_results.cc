// The composition of memory at the kept moments, and the totals over all time; see memory.h.
#include <algorithm>
#include <tuple>
#include <utility>

#include "tools/report/memory.h"

namespace fracgpu::tools::report {
namespace {

// Further parts lose their call stacks, so that many moments of a large program stay small.
constexpr size_t kMostParts = 4096;

void sort_parts(std::vector<Part>& parts) {
  std::sort(parts.begin(), parts.end(), [](const Part& one, const Part& other) {
    return std::tuple(other.taken, other.live, one.process, one.kind, one.stack) <
           std::tuple(one.taken, one.live, other.process, other.kind, other.stack);
  });
}

// Merges the smallest parts into one for each process and kind.
void shorten(std::vector<Part>& parts) {
  if (parts.size() <= kMostParts) return;
  std::vector<Part> rest(parts.begin() + kMostParts, parts.end());
  parts.resize(kMostParts);
  std::sort(rest.begin(), rest.end(), [](const Part& one, const Part& other) {
    return std::pair(one.process, one.kind) < std::pair(other.process, other.kind);
  });
  for (Part& each : rest) {
    Part& last = parts.back();
    if (parts.size() > kMostParts && last.process == each.process && last.kind == each.kind) {
      last.taken += each.taken;
      last.live += each.live;
      last.count += each.count;
    } else {
      each.stack = 0;
      parts.push_back(each);
    }
  }
  sort_parts(parts);
}

Moment moment_of(uint64_t time_ns, const Sums& sums, std::vector<Part> parts) {
  Moment moment{time_ns, sums, {}, std::move(parts)};
  for (const Part& part : moment.parts) {
    moment.by_kind[static_cast<size_t>(part.kind)] += part.taken;
  }
  return moment;
}

}  // namespace

void Memory::end_point(DeviceState& device) {
  const Stretch& at = device.point;
  Point point{at.time_ns, at.sums, at.by_kind, {}, at.cap};
  for (const uint32_t each : device.uses) {
    const uint64_t taken = uses_[each].taken.at(at.moment, uses_[each].now.taken);
    if (taken > 0) point.by_process.push_back({uses_[each].use.process, taken});
  }
  device.points.add(std::move(point));
}

std::vector<Part> Memory::parts_of_device(const DeviceState& device) const {
  std::vector<Part> parts;
  for (const uint32_t use : device.uses) {
    for (const uint32_t each : uses_[use].cells) {
      const Cell& cell = cells_[each];
      const Amounts& then = cell.of_device.at(device.moment.moment, cell.now);
      if (then.taken == 0 && then.count == 0) continue;
      parts.push_back({cell.process, cell.kind, cell.stack, then.taken, then.live, then.count});
    }
  }
  sort_parts(parts);
  return parts;
}

void Memory::end_moment(DeviceState& device) {
  std::vector<Part> parts = parts_of_device(device);
  shorten(parts);
  Moment moment = moment_of(device.moment.time_ns, device.moment.sums, std::move(parts));
  moment.cap = device.moment.cap;
  device.moments.add(std::move(moment));
}

void Memory::finish_device(DeviceState& device) {
  go_on_to(device, now_ns_);
  end_point(device);
  end_moment(device);
  DeviceUse& use = device.use;
  use.at_end = device.now;
  use.timeline = device.points.take();
  use.moments = device.moments.take();
  for (const Moment& each : use.moments) {
    if (is_greater(each.sums, use.peak.sums)) use.peak = each;
  }
  use.taken = {use.peak.sums.taken, use.peak.time_ns};
}

void Memory::finish_use(UseState& state) {
  const uint32_t process = state.use.process;
  const bool ended = process < processes_.size() && processes_[process].ended;
  if (!ended || state.now != Sums{}) release_all(state);
  std::vector<Part> parts;
  for (const uint32_t each : state.cells) {
    const Cell& cell = cells_[each];
    const Amounts& then = cell.of_use.at(state.moment, cell.now);
    if (then == Amounts{}) continue;
    parts.push_back({process, cell.kind, cell.stack, then.taken, then.live, then.count});
  }
  sort_parts(parts);
  const Moment& peak = state.use.peak;
  state.use.peak = moment_of(peak.time_ns, peak.sums, std::move(parts));
  state.use.taken = {peak.sums.taken, peak.time_ns};
}

void Memory::finish(Analysis& analysis) {
  for (DeviceState& each : devices_) {
    finish_device(each);
    analysis.devices.push_back(std::move(each.use));
  }
  for (UseState& each : uses_) {
    finish_use(each);
    for (auto& [number, thread] : each.threads) {
      thread.process = each.use.process;
      thread.device = each.use.device;
      analysis.threads.push_back(thread);
    }
    // Skips a process that had ended before the span began.
    if (from_ns_ > 0 && each.use.taken.bytes == 0 && each.use.refusals == 0) continue;
    analysis.uses.push_back(std::move(each.use));
  }
  for (const Cell& cell : cells_) {
    const uint64_t lives = cell.allocations + cell.carried;
    if (lives == 0) continue;
    const double lifetime_ns = cell.lifetimes_ns / static_cast<double>(lives);
    analysis.sites.push_back({cell.process, cell.device, cell.kind, cell.stack, cell.allocations,
                              cell.allocated_bytes, cell.releases, cell.left_count, cell.left_bytes,
                              cell.most_live, static_cast<uint64_t>(std::max(0.0, lifetime_ns)),
                              cell.temporary_count, cell.temporary_bytes});
  }
  processes_.resize(tables_.processes.size());
  analysis.processes = std::move(processes_);
  analysis.pools = std::move(ended_pools_);
  analysis.refusals = std::move(refusals_);
  analysis.marks = std::move(marks_);
  analysis.duration_ns = now_ns_;
  analysis.from_ns = from_ns_;
  analysis.events = events_;
  analysis.allocations = allocations_;
  analysis.releases = releases_;
  analysis.refusals_total = refusals_total_;
  analysis.dropped = dropped_;
  analysis.unmatched = unmatched_;
}

}  // namespace fracgpu::tools::report
