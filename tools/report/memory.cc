// See memory.h.
#include "tools/report/memory.h"

#include <algorithm>
#include <utility>

namespace fracgpu::tools::report {
namespace {

using recording::kNone;
using recording::MemoryKind;

// A pool takes memory a moment before it hands it to the program.
constexpr uint64_t kLasting_ns = 1'000'000;

// Exact, because format.h limits the numbers of processes, devices and stacks.
uint64_t key_of(uint32_t process, uint32_t device, MemoryKind kind, uint32_t stack) {
  return static_cast<uint64_t>(process + 1U) << 44 | static_cast<uint64_t>(device + 1U) << 32 |
         static_cast<uint64_t>(kind) << 28 | stack;
}

void raise(Peak& peak, uint64_t bytes, uint64_t time_ns) {
  if (bytes > peak.bytes) peak = {bytes, time_ns};
}

}  // namespace

uint64_t Memory::PoolState::returnable() const {
  return reserved - std::min(reserved, std::max(live, chunks.in_use()));
}

size_t Memory::LevelHash::operator()(const LevelKey& key) const {
  return (key.owner ^ static_cast<uint64_t>(key.kind) << 56) * 0x9e3779b97f4a7c15 >> 16;
}

Memory::Memory(const Choice& choice, const recording::Tables& tables)
    : choice_(choice), tables_(tables) {}

uint32_t Memory::device_of(uint32_t device) {
  const auto [place, is_new] =
      device_numbers_.try_emplace(device, static_cast<uint32_t>(devices_.size()));
  if (is_new) {
    DeviceState& state = devices_.emplace_back(choice_);
    state.use.device = device;
    if (device != kNone) state.use.cap = tables_.devices[device].cap;
    state.point.cap = state.moment.cap = state.use.cap;
  }
  return place->second;
}

uint32_t Memory::use_of(uint32_t process, uint32_t device) {
  const auto [place, is_new] = use_numbers_.try_emplace(
      key_of(process, device, MemoryKind::linear, 0), static_cast<uint32_t>(uses_.size()));
  if (is_new) {
    UseState& state = uses_.emplace_back();
    state.use.process = process;
    state.use.device = device;
    state.device = device_of(device);
    devices_[state.device].uses.push_back(place->second);
    uses_of_process_[process].push_back(place->second);
  }
  return place->second;
}

uint32_t Memory::number_of(uint32_t process, uint32_t device, MemoryKind kind, uint32_t stack) {
  const auto [place, is_new] = cell_numbers_.try_emplace(key_of(process, device, kind, stack),
                                                         static_cast<uint32_t>(cells_.size()));
  if (is_new) {
    const uint32_t use = use_of(process, device);
    uses_[use].cells.push_back(place->second);
    Cell& cell = cells_.emplace_back();
    cell.process = process;
    cell.device = device;
    cell.stack = stack;
    cell.kind = kind;
    cell.use = use;
  }
  return place->second;
}

Memory::Cell& Memory::cell_of(uint32_t process, uint32_t device, MemoryKind kind, uint32_t stack) {
  if (last_cells_.size() <= stack) last_cells_.resize(tables_.stacks.size(), kNone);
  uint32_t& last = last_cells_[stack];
  if (last != kNone) {
    Cell& cell = cells_[last];
    if (cell.process == process && cell.device == device && cell.kind == kind) return cell;
  }
  last = number_of(process, device, kind, stack);
  return cells_[last];
}

ProcessLife& Memory::life_of(uint32_t process) {
  if (processes_.size() <= process) processes_.resize(process + 1);
  return processes_[process];
}

ThreadUse& Memory::thread_of(UseState& use, uint32_t thread) {
  if (use.last_thread == nullptr || use.last_thread->thread != thread) {
    use.last_thread = &use.threads[thread];
    use.last_thread->thread = thread;
  }
  return *use.last_thread;
}

void Memory::change_taken(UseState& use, uint64_t by) {
  use.taken.before_change(devices_[use.device].point.moment, use.now.taken);
  use.now.taken += by;
  use.now.needed += by;
  devices_[use.device].now.taken += by;
  devices_[use.device].now.needed += by;
}

void Memory::change(Cell& cell, uint64_t taken, uint64_t live, uint64_t count) {
  UseState& use = uses_[cell.use];
  DeviceState& device = devices_[use.device];
  cell.of_device.before_change(device.moment.moment, cell.now);
  cell.of_use.before_change(use.moment, cell.now);
  cell.now.taken += taken;
  cell.now.live += live;
  cell.now.count += count;
  device.by_kind[static_cast<size_t>(cell.kind)] += taken;
  use.now.live += live;
  device.now.live += live;
}

Memory::PoolState& Memory::pool_of(UseState& use, uint64_t owner) {
  const auto [place, is_new] = use.pools.try_emplace(owner);
  if (is_new) {
    Pool& pool = place->second.pool;
    pool.process = use.use.process;
    pool.device = use.use.device;
    pool.owner = owner;
    pool.at_end.time_ns = now_ns_;
  }
  return place->second;
}

// Records the pool's state until now.
void Memory::note_fragmentation(PoolState& state) {
  Pool& pool = state.pool;
  const bool lasted = now_ns_ - pool.at_end.time_ns >= kLasting_ns;
  if (lasted && state.unused() > pool.worst.unused()) pool.worst = pool.at_end;
}

// `unused` and `returnable` are the pool's values before the change.
void Memory::note_pool(UseState& use, PoolState& state, uint64_t unused, uint64_t returnable) {
  Pool& pool = state.pool;
  pool.at_end = {now_ns_, state.reserved, state.live};
  if (std::pair(state.reserved, state.live) > std::pair(pool.peak.reserved, pool.peak.live)) {
    pool.peak = pool.at_end;
  }
  const uint64_t returnable_by = state.returnable() - returnable;
  use.now.needed -= returnable_by;
  devices_[use.device].now.needed -= returnable_by;
  const uint64_t unused_by = state.unused() - unused;
  if (unused_by != 0) {
    change(cell_of(use.use.process, use.use.device, MemoryKind::reserved, 0), unused_by, 0, 0);
  }
}

void Memory::note_peaks(UseState& use) {
  raise(use.use.live, use.now.live, now_ns_);
  raise(use.use.needed, use.now.needed, now_ns_);
  if (is_greater(use.now, use.use.peak.sums)) {
    use.use.peak.sums = use.now;
    use.use.peak.time_ns = now_ns_;
    ++use.moment;
  }
  DeviceState& device = devices_[use.device];
  raise(device.use.live, device.now.live, now_ns_);
  raise(device.use.needed, device.now.needed, now_ns_);
  if (is_greater(device.now, device.point.sums)) see(device, device.point, now_ns_);
  if (is_greater(device.now, device.moment.sums)) see(device, device.moment, now_ns_);
}

void Memory::see(const DeviceState& device, Stretch& stretch, uint64_t time_ns) {
  ++stretch.moment;
  stretch.time_ns = time_ns;
  stretch.sums = device.now;
  stretch.by_kind = device.by_kind;
  stretch.cap = device.use.cap;
}

void Memory::go_on_to(DeviceState& device, uint64_t time_ns) {
  const auto go_on = [&](Stretch& stretch, const auto& timeline, auto end) {
    if (time_ns < stretch.end_ns) return;
    const uint64_t ended_ns = stretch.end_ns;
    if (ended_ns > 0) (this->*end)(device);
    // The value at the end of the last stretch has lasted until now.
    see(device, stretch, ended_ns);
    if (ended_ns > 0 && timeline.begin_of(time_ns) > ended_ns) {
      (this->*end)(device);
      see(device, stretch, timeline.begin_of(time_ns));
    }
    stretch.end_ns = timeline.end_of(time_ns);
  };
  go_on(device.point, device.points, &Memory::end_point);
  go_on(device.moment, device.moments, &Memory::end_moment);
}

}  // namespace fracgpu::tools::report
