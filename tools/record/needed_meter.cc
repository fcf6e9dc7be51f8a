// See needed_meter.h.
#include "tools/record/needed_meter.h"

#include <algorithm>

namespace fracgpu::tools {

using recording::Event;
using recording::EventType;
using recording::MemoryKind;

// `by` may be negative: numbers wrap around.
void NeededMeter::add(uint32_t device, Use& use, uint64_t by) {
  use.needed += by;
  uint64_t& now = now_[device];
  now += by;
  // Missing or duplicate releases would make it negative.
  if (static_cast<int64_t>(now) < 0) now = 0;
  uint64_t& peak = peaks_[device];
  peak = std::max(peak, now);
}

template <typename Change>
void NeededMeter::change_pool(const Event& event, Change change) {
  Use& use = uses_[{event.process, event.device}];
  Pool& pool = use.pools[event.owner];
  const uint64_t before = pool.needed();
  change(pool);
  add(event.device, use, pool.needed() - before);
}

void NeededMeter::apply(const Event& event) {
  if (event.type == EventType::ended) {
    for (auto& [key, use] : uses_) {
      if (key.first != event.process) continue;
      add(key.second, use, 0 - use.needed);
      use = {};
    }
    return;
  }
  if (event.device == recording::kNone) return;
  Use& use = uses_[{event.process, event.device}];
  switch (event.type) {
    case EventType::allocated:
      if (event.kind == MemoryKind::pool) {
        change_pool(event, [&](Pool& pool) { pool.chunks.allocate(event.address, event.bytes); });
      } else {
        add(event.device, use, event.taken);
      }
      break;
    case EventType::released:
      if (event.kind == MemoryKind::pool) {
        change_pool(event, [&](Pool& pool) { pool.chunks.release(event.address); });
      } else {
        add(event.device, use, 0 - event.taken);
      }
      break;
    case EventType::level:
      if (event.kind == MemoryKind::reserved) {
        change_pool(event, [&](Pool& pool) {
          if (event.taken > pool.reserved) pool.chunks.grow(event.taken - pool.reserved);
          pool.reserved = event.taken;
        });
      } else {
        uint64_t& level = use.levels[{event.kind, event.owner}];
        const uint64_t by = event.taken - level;
        level = event.taken;
        add(event.device, use, by);
      }
      break;
    default:
      break;
  }
}

}  // namespace fracgpu::tools
