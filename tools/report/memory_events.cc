// The effect of each event; see memory.h.
#include <algorithm>
#include <bit>
#include <utility>

#include "tools/report/memory.h"

namespace fracgpu::tools::report {
namespace {

using recording::Event;
using recording::EventType;
using recording::kNone;
using recording::MemoryKind;

// No GPU has that much memory, and no recording is that long. So sums do not overflow, whatever a
// file contains.
constexpr uint64_t kMostBytes = uint64_t{1} << 48;
constexpr uint64_t kLatest_ns = uint64_t{1} << 62;

uint64_t bounded(uint64_t bytes) {
  return std::min(bytes, kMostBytes);
}

// An allocation from a pool takes no memory itself, but it is a use of the pool's memory.
uint64_t part_of(const Event& event) {
  return bounded(event.kind == MemoryKind::pool ? event.bytes : event.taken);
}

size_t size_class_of(uint64_t bytes) {
  return bytes == 0 ? 0 : static_cast<size_t>(std::bit_width(bytes) - 1);
}

}  // namespace

void Memory::apply(const Event& event) {
  now_ns_ = std::max(now_ns_, std::min(event.time_ns, kLatest_ns));
  ++events_;
  switch (event.type) {
    case EventType::allocated:
      return allocate(event);
    case EventType::released:
      return release(event);
    case EventType::level:
      return set_level(event);
    case EventType::refused:
      return refuse(event);
    case EventType::dropped:
      dropped_ += bounded(event.bytes);
      if (event.process != kNone) life_of(event.process).dropped += bounded(event.bytes);
      return;
    case EventType::cap: {
      DeviceState& device = devices_[device_of(event.device)];
      go_on_to(device, now_ns_);
      device.use.cap = event.cap;
      return;
    }
    case EventType::ended:
      if (event.process == kNone) return;
      life_of(event.process) = {true, event.bytes, now_ns_, life_of(event.process).dropped};
      return end_process(event.process);
    case EventType::mark:
      // Those of no process are the recorder's, few, and may come last.
      if (marks_.size() < (event.process == kNone ? 2 * kMostMarks : kMostMarks)) {
        marks_.push_back({now_ns_, event.process, tables_.texts[event.api]});
      }
      return;
  }
}

template <typename ChangeChunks>
void Memory::change_pool(UseState& use, uint64_t owner, uint64_t reserved_by, uint64_t live_by,
                         ChangeChunks change_chunks) {
  PoolState& state = pool_of(use, owner);
  const uint64_t unused = state.unused(), returnable = state.returnable();
  note_fragmentation(state);
  state.reserved += reserved_by;
  state.live += live_by;
  change_chunks(state.chunks);
  note_pool(use, state, unused, returnable);
}

void Memory::allocate(const Event& event) {
  ++allocations_;
  Cell& cell = cell_of(event.process, event.device, event.kind, event.stack);
  UseState& use = uses_[cell.use];
  DeviceState& device = devices_[use.device];
  go_on_to(device, now_ns_);
  const uint64_t bytes = bounded(event.bytes);
  change(cell, part_of(event), bytes, 1);
  change_taken(use, bounded(event.taken));
  use.last_address = event.address;
  ThreadUse& thread = thread_of(use, event.thread);
  ++thread.allocations;
  thread.allocated_bytes += bytes;
  ++cell.allocations;
  cell.allocated_bytes += bytes;
  cell.most_live = std::max(cell.most_live, cell.now.live);
  cell.lifetimes_ns -= static_cast<double>(now_ns_);
  SizeClass& sizes = device.use.sizes[size_class_of(bytes)];
  ++sizes.count;
  sizes.bytes += bytes;
  if (event.kind == MemoryKind::pool) {
    Pool& pool = pool_of(use, event.owner).pool;
    ++pool.allocations;
    pool.allocated_bytes += bytes;
    change_pool(use, event.owner, 0, bytes,
                [&](PoolChunks& chunks) { chunks.allocate(event.address, bytes); });
  }
  note_peaks(use);
}

void Memory::release(const Event& event) {
  ++releases_;
  Cell& cell = cell_of(event.process, event.device, event.kind, event.stack);
  const Amounts now = cell.now;
  if (now.count == 0) {
    ++unmatched_;
    return;
  }
  UseState& use = uses_[cell.use];
  go_on_to(devices_[use.device], now_ns_);
  const uint64_t bytes = std::min(now.live, bounded(event.bytes));
  change(cell, 0 - std::min(now.taken, part_of(event)), 0 - bytes, 0 - uint64_t{1});
  change_taken(use, 0 - std::min(use.now.taken, bounded(event.taken)));
  ++cell.releases;
  ThreadUse& thread = thread_of(use, event.thread);
  ++thread.releases;
  thread.released_bytes += bytes;
  if (event.address != 0 && event.address == use.last_address) {
    ++cell.temporary_count;
    cell.temporary_bytes += bytes;
    use.last_address = 0;
  }
  cell.lifetimes_ns += static_cast<double>(now_ns_);
  if (event.kind == MemoryKind::pool) {
    const uint64_t live = pool_of(use, event.owner).live;
    change_pool(use, event.owner, 0, 0 - std::min(live, bytes),
                [&](PoolChunks& chunks) { chunks.release(event.address); });
    note_peaks(use);
  }
}

void Memory::set_level(const Event& event) {
  const uint32_t number = use_of(event.process, event.device);
  go_on_to(devices_[uses_[number].device], now_ns_);
  uint64_t& level = uses_[number].levels[{event.kind, event.owner}];
  const uint64_t by = bounded(event.taken) - level;
  level += by;
  change_taken(uses_[number], by);
  if (event.kind == MemoryKind::reserved) {
    change_pool(uses_[number], event.owner, by, 0, [&](PoolChunks& chunks) {
      if (static_cast<int64_t>(by) > 0) chunks.grow(by);
    });
  } else {
    // The level belongs to no single call.
    change(cell_of(event.process, event.device, event.kind, 0), by, 0, 0);
  }
  note_peaks(uses_[number]);
}

void Memory::refuse(const Event& event) {
  ++refusals_total_;
  const uint32_t number = use_of(event.process, event.device);
  UseState& use = uses_[number];
  DeviceState& device = devices_[use.device];
  ++use.use.refusals;
  ++device.use.refusals;
  if (refusals_.size() == kMostRefusals) return;
  Refusal& refusal = refusals_.emplace_back();
  refusal.event = event;
  refusal.unused_own = use.now.taken - use.now.needed;
  refusal.unused_others = device.now.taken - device.now.needed - refusal.unused_own;
  for (const uint32_t each : device.uses) {
    const UseState& other = uses_[each];
    if (other.now.taken > refusal.largest.taken) {
      refusal.largest = {other.use.process, other.now.taken};
    }
  }
}

void Memory::end_process(uint32_t process) {
  const auto found = uses_of_process_.find(process);
  if (found == uses_of_process_.end()) return;
  for (const uint32_t each : found->second) {
    go_on_to(devices_[uses_[each].device], now_ns_);
    release_all(uses_[each]);
  }
}

void Memory::release_all(UseState& use) {
  use.use.at_end = use.now;
  for (const uint32_t each : use.cells) {
    Cell& cell = cells_[each];
    const Amounts now = cell.now;
    cell.left_count += now.count;
    cell.left_bytes += now.live;
    cell.lifetimes_ns += static_cast<double>(now.count) * static_cast<double>(now_ns_);
    if (now != Amounts{}) change(cell, 0 - now.taken, 0 - now.live, 0 - now.count);
  }
  for (auto& [owner, state] : use.pools) {
    note_fragmentation(state);
    ended_pools_.push_back(state.pool);
    ended_pools_.back().at_end.time_ns = now_ns_;
  }
  DeviceState& device = devices_[use.device];
  const uint64_t returnable = use.now.taken - use.now.needed;
  change_taken(use, 0 - use.now.taken);
  device.now.needed += returnable;
  use.now = {};
  use.pools.clear();
  use.levels.clear();
}

}  // namespace fracgpu::tools::report
