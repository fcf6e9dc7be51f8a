// Linear probing with backward-shift deletion; see live_map.h.
//
// Device addresses are multiples of 256 at least and often of 2 MiB, so the hash multiplies by an
// odd constant and uses the high bits: shard and slot then come from different bits of the product.
#include "shim/live_map.h"

#include <string.h>
#include <sys/mman.h>

namespace fracgpu {
namespace {

constexpr uint64_t mix(uint64_t key) {
  key *= 0x9e3779b97f4a7c15;  // 2^64 / golden ratio
  return key ^ key >> 32;
}

}  // namespace

LiveMap::Shard& LiveMap::shard_of(uint64_t key) {
  return shards_[mix(key) % kShards];
}

size_t LiveMap::Shard::slot_of(uint64_t key) const {
  return mix(key) / kShards & mask;
}

size_t LiveMap::Shard::find(uint64_t key) {
  size_t slot = slot_of(key);
  while (table()[slot].key != 0 && table()[slot].key != key) slot = (slot + 1) & mask;
  return slot;
}

bool LiveMap::Shard::reserve_one() {
  // At most half full: probe runs stay within a cache line or two.
  if ((count + 1) * 2 <= capacity()) return true;
  const size_t old_capacity = capacity(), new_capacity = old_capacity * 4;
  void* bytes = mmap(nullptr, new_capacity * sizeof(Allocation), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  // One free slot must stay, or a look-up of an unknown key would never end.
  if (bytes == MAP_FAILED) return count + 1 < capacity();
  Allocation* const old = table();
  Allocation* const old_grown = grown;
  grown = static_cast<Allocation*>(bytes);
  mask = new_capacity - 1;
  for (size_t i = 0; i < old_capacity; ++i) {
    if (old[i].key != 0) grown[find(old[i].key)] = old[i];
  }
  if (old_grown != nullptr) munmap(old_grown, old_capacity * sizeof(Allocation));
  return true;
}

void LiveMap::Shard::erase(size_t hole) {
  Allocation* const entries = table();
  for (size_t next = (hole + 1) & mask; entries[next].key != 0; next = (next + 1) & mask) {
    // An entry may move back into the hole unless its own slot lies between hole and it.
    const size_t distance_home = (next - slot_of(entries[next].key)) & mask;
    const size_t distance_hole = (next - hole) & mask;
    if (distance_home >= distance_hole) {
      entries[hole] = entries[next];
      hole = next;
    }
  }
  entries[hole] = Allocation{};
  --count;
}

void LiveMap::Shard::enter(Allocation& entry, const Allocation& allocation) {
  entry = allocation;
  units[entry.row] += entry.units;
  ++changes;
}

void LiveMap::Shard::forget(const Allocation& entry) {
  if (entry.leaving < entry.users) units[entry.row] -= entry.units;
  ++changes;
}

void LiveMap::Shard::change_users(Allocation& entry, int users, int leaving) {
  const bool counted = entry.leaving < entry.users;
  entry.users += static_cast<uint32_t>(users);
  entry.leaving += static_cast<uint32_t>(leaving);
  const bool counts = entry.leaving < entry.users;
  if (counts && !counted) units[entry.row] += entry.units;
  if (counted && !counts) units[entry.row] -= entry.units;
  ++changes;
}

LiveMap::Added LiveMap::add(const Allocation& allocation, Allocation& displaced) {
  Shard& shard = shard_of(allocation.key);
  Locked<SpinLock> lock(shard.lock);
  displaced = Allocation{};
  if (!shard.reserve_one()) return Added::out_of_memory;
  Allocation& entry = shard.table()[shard.find(allocation.key)];
  if (entry.key != 0) {
    displaced = entry;
    shard.forget(entry);
  } else {
    ++shard.count;
  }
  shard.enter(entry, allocation);
  return Added::fresh;
}

LiveMap::Added LiveMap::add_user(const Allocation& chunk, Allocation& displaced) {
  Shard& shard = shard_of(chunk.key);
  Locked<SpinLock> lock(shard.lock);
  displaced = Allocation{};
  Allocation* entry = &shard.table()[shard.find(chunk.key)];
  if (entry->key != 0 && entry->context == chunk.context) {
    shard.change_users(*entry, 1, 0);
    return Added::shared;
  }
  if (entry->key != 0) {
    displaced = *entry;
    shard.forget(*entry);
  } else {
    if (!shard.reserve_one()) return Added::out_of_memory;
    entry = &shard.table()[shard.find(chunk.key)];
    ++shard.count;
  }
  shard.enter(*entry, chunk);
  return Added::fresh;
}

bool LiveMap::begin_drop(uint64_t key, Allocation& found) {
  Shard& shard = shard_of(key);
  Locked<SpinLock> lock(shard.lock);
  Allocation& entry = shard.table()[shard.find(key)];
  found = entry;
  if (entry.key == 0) return false;
  shard.change_users(entry, 0, 1);
  return true;
}

uint32_t LiveMap::finish_drop(uint64_t key, uint16_t context) {
  Shard& shard = shard_of(key);
  Locked<SpinLock> lock(shard.lock);
  const size_t slot = shard.find(key);
  Allocation& entry = shard.table()[slot];
  if (entry.key == 0 || entry.context != context || entry.leaving == 0) return 0;
  shard.change_users(entry, -1, -1);
  if (entry.users > 0) return 0;
  const uint32_t units = entry.units;
  shard.erase(slot);
  return units;
}

void LiveMap::abandon_drop(uint64_t key, uint16_t context) {
  Shard& shard = shard_of(key);
  Locked<SpinLock> lock(shard.lock);
  Allocation& entry = shard.table()[shard.find(key)];
  if (entry.key == 0 || entry.context != context || entry.leaving == 0) return;
  shard.change_users(entry, 0, -1);
}

bool LiveMap::take(uint64_t key, Allocation& taken) {
  Shard& shard = shard_of(key);
  Locked<SpinLock> lock(shard.lock);
  const size_t slot = shard.find(key);
  taken = shard.table()[slot];
  if (taken.key == 0) return false;
  shard.forget(taken);
  shard.erase(slot);
  return true;
}

LiveMap::Still::Still(LiveMap& map) : map_(map) {
  for (Shard& shard : map_.shards_) shard.lock.lock();
}

LiveMap::Still::~Still() {
  for (Shard& shard : map_.shards_) shard.lock.unlock();
}

uint64_t LiveMap::Still::units(int row) const {
  uint64_t sum = 0;
  for (const Shard& shard : map_.shards_) sum += shard.units[row];
  return sum;
}

uint64_t LiveMap::Still::changes() const {
  uint64_t sum = 0;
  for (const Shard& shard : map_.shards_) sum += shard.changes;
  return sum;
}

}  // namespace fracgpu
