// Entries and the sums over them; see live_map.h.
#include "shim/tracking/live_map.h"

namespace fracgpu {
namespace {

// One user, in the upper half of a device index's sum.
constexpr uint64_t kOneUser = uint64_t{1} << 32;

// What the entry adds to its device index's sum.
uint64_t sum_of(const Allocation& entry) {
  const uint32_t units = entry.leaving < entry.users ? entry.units : 0;
  return entry.users * kOneUser | units;
}

// A part of what `sums` counts, so 0 for a chunk whose users are all leaving.
uint64_t managed_units(const Allocation& entry) {
  return entry.managed && entry.leaving < entry.users ? entry.units : 0;
}

bool same_owner(const Allocation& one, const Allocation& other) {
  return one.context == other.context && one.pool == other.pool;
}

}  // namespace

void LiveMap::Shard::enter(Allocation& entry, const Allocation& allocation) {
  entry = allocation;
  sums[entry.device_index].units_and_users += sum_of(entry);
  if (entry.managed) sums[entry.device_index].managed += managed_units(entry);
  ++changes;
}

void LiveMap::Shard::forget(const Allocation& entry) {
  sums[entry.device_index].units_and_users -= sum_of(entry);
  if (entry.managed) sums[entry.device_index].managed -= managed_units(entry);
  ++changes;
}

void LiveMap::Shard::displace(Allocation& entry, Allocation& displaced) {
  displaced = entry;
  forget(entry);
}

// For a chunk whose first user comes, or whose last one leaves.
inline void LiveMap::Shard::count_units(const Allocation& entry, int sign) {
  const uint64_t units = sign < 0 ? -uint64_t{entry.units} : entry.units;
  sums[entry.device_index].units_and_users += units;
  if (entry.managed) sums[entry.device_index].managed += units;
}

inline void LiveMap::Shard::add_user(Allocation& entry) {
  if (entry.leaving == entry.users) count_units(entry, 1);
  sums[entry.device_index].units_and_users += kOneUser;
  ++entry.users;
  ++changes;
}

inline void LiveMap::Shard::begin_drop(Allocation& entry) {
  if (++entry.leaving == entry.users) count_units(entry, -1);
  ++changes;
}

// Does not change whether all users are leaving.
inline void LiveMap::Shard::finish_drop(Allocation& entry) {
  sums[entry.device_index].units_and_users -= kOneUser;
  --entry.users;
  --entry.leaving;
  ++changes;
}

inline void LiveMap::Shard::abandon_drop(Allocation& entry) {
  if (entry.leaving-- == entry.users) count_units(entry, 1);
  ++changes;
}

inline bool LiveMap::Shard::begin_drop_of(uint64_t key, Allocation& found) {
  Allocation* const entry = table.find(key);
  if (entry == nullptr || entry->leaving == entry->users) return false;
  found = *entry;
  begin_drop(*entry);
  return true;
}

inline bool LiveMap::Shard::take(uint64_t key, Allocation& taken) {
  Allocation* const entry = table.find(key);
  if (entry == nullptr) return false;
  taken = *entry;
  forget(*entry);
  table.erase(entry);
  return true;
}

LiveMap::Added LiveMap::add(const Allocation& allocation, Allocation& displaced) {
  const uint64_t key = allocation.key;
  if (!Table::is_page(key) && !any_within_page_.load(std::memory_order_relaxed)) {
    any_within_page_.store(true, std::memory_order_relaxed);
  }
  Shard& shard = shard_of(key);
  Locked<SpinLock> lock(shard.lock);
  const InvariantScope scope(shard, shard.timer);
  Allocation* const entry = shard.table.insert(key);
  if (entry == nullptr) return Added::out_of_memory;
  if (entry->users != 0) shard.displace(*entry, displaced);
  shard.enter(*entry, allocation);
  return Added::fresh;
}

LiveMap::Added LiveMap::add_user(const Allocation& chunk, Allocation& displaced,
                                 const ChunkPart& part) {
  const uint64_t key = chunk.key;
  Shard& shard = shard_of(key);
  Locked<SpinLock> lock(shard.lock);
  const InvariantScope scope(shard, shard.timer);
  Allocation* const entry = shard.table.insert(key);
  if (entry == nullptr) return Added::out_of_memory;
  // The driver may already have made a new chunk at the address, while importers keep the memory of
  // the exported one. Two chunks are then to be charged.
  const bool is_left_to_importers = entry->exported && entry->leaving == entry->users;
  if (entry->users != 0 && same_owner(*entry, chunk) && !is_left_to_importers) {
    shard.add_user(*entry);
    occupancies_.take(entry->detail, part);
    return Added::shared;
  }
  if (entry->users != 0) {
    shard.displace(*entry, displaced);
    occupancies_.drop(entry->detail);
  }
  shard.enter(*entry, chunk);
  if (part.units != 0 && ChunkOccupancy::holds(part))
    entry->detail = ChunkOccupancies::of_one(part);
  return Added::fresh;
}

template <typename Visit>
bool LiveMap::any_hole(const Allocation& like, uint32_t units, Visit visit) {
  for (Shard& shard : shards_) {
    Locked<SpinLock> lock(shard.lock);
    const Allocation* found = nullptr;
    shard.table.for_each([&](const Allocation& entry) {
      // For the others it is not known which process has a chunk, or when a part of it is freed.
      if (found != nullptr || !is_chunk(entry) || !same_owner(entry, like) ||
          entry.device_index != like.device_index || entry.managed != like.managed ||
          entry.exported || entry.lingers || entry.leaving == entry.users) {
        return;
      }
      if (occupancies_.has_hole(entry.detail, units)) found = &entry;
    });
    if (found != nullptr) {
      visit(shard, *shard.table.find(found->key));
      return true;
    }
  }
  return false;
}

bool LiveMap::has_hole(const Allocation& like, uint32_t units) {
  return any_hole(like, units, [](Shard&, Allocation&) {});
}

bool LiveMap::pin_hole(const Allocation& like, uint32_t units, Allocation& pinned) {
  return any_hole(like, units, [&](Shard& shard, Allocation& entry) {
    shard.add_user(entry);
    pinned = entry;
  });
}

bool LiveMap::mark_exported(uint64_t key, Allocation& entry) {
  Shard& shard = shard_of(key);
  Locked<SpinLock> lock(shard.lock);
  const InvariantScope scope(shard, shard.timer);
  Allocation* known = shard.table.find(key);
  if (known == nullptr) return false;
  const bool first = !known->exported;
  known->exported = true;
  entry = *known;
  return first;
}

bool LiveMap::mark_apart(uint64_t key) {
  Shard& shard = shard_of(key);
  Locked<SpinLock> lock(shard.lock);
  Allocation* const known = shard.table.find(key);
  if (known == nullptr || known->apart) return false;
  return known->apart = true;
}

bool LiveMap::find(uint64_t key, Allocation& found) {
  Shard& shard = shard_of(key);
  Locked<SpinLock> lock(shard.lock);
  const Allocation* const entry = shard.table.find(key);
  if (entry != nullptr) found = *entry;
  return entry != nullptr;
}

bool LiveMap::begin_drop(uint64_t key, Allocation& found) {
  Shard& shard = shard_of(key);
  Locked<SpinLock> lock(shard.lock);
  const InvariantScope scope(shard, shard.timer);
  return shard.begin_drop_of(key, found);
}

bool LiveMap::take_or_begin_drop(uint64_t address, uint64_t chunk, Allocation& found) {
  if (!Table::is_page(address)) {
    const bool any = any_within_page_.load(std::memory_order_relaxed);
    return (any && take(address, found)) || begin_drop(chunk, found);
  }
  Shard& shard = shard_of(address);  // of both
  Locked<SpinLock> lock(shard.lock);
  const InvariantScope scope(shard, shard.timer);
  return shard.take(address, found) || shard.begin_drop_of(chunk, found);
}

uint32_t LiveMap::finish_drop(const Allocation& chunk, Allocation* gone, bool lingers,
                              uint32_t first) {
  const uint64_t key = chunk.key;
  Shard& shard = shard_of(key);
  Locked<SpinLock> lock(shard.lock);
  const InvariantScope scope(shard, shard.timer);
  Allocation* const entry = shard.table.find(key);
  if (entry == nullptr || !same_owner(*entry, chunk) || entry->leaving == 0) return 0;
  shard.finish_drop(*entry);
  if (lingers) entry->lingers = true;
  if (entry->users > 0) {
    if (!lingers) occupancies_.release(entry->detail, first);
    return 0;
  }
  const uint32_t units = entry->units;
  if (gone != nullptr) *gone = *entry;
  occupancies_.drop(entry->detail);
  shard.table.erase(entry);
  return units;
}

void LiveMap::abandon_drop(const Allocation& chunk) {
  Shard& shard = shard_of(chunk.key);
  Locked<SpinLock> lock(shard.lock);
  const InvariantScope scope(shard, shard.timer);
  Allocation* entry = shard.table.find(chunk.key);
  if (entry == nullptr || !same_owner(*entry, chunk) || entry->leaving == 0) return;
  shard.abandon_drop(*entry);
}

bool LiveMap::take(uint64_t key, Allocation& taken) {
  Shard& shard = shard_of(key);
  Locked<SpinLock> lock(shard.lock);
  const InvariantScope scope(shard, shard.timer);
  return shard.take(key, taken);
}

void LiveMap::add_device(int device_index) {
  const auto index = static_cast<size_t>(device_index);
  for (Shard& shard : shards_) {
    Locked<SpinLock> lock(shard.lock);
    shard.sums.make(index);
    shard.devices.set(index);
  }
}

uint64_t LiveMap::count(int device_index) {
  uint64_t sum = 0;
  for (Shard& shard : shards_) {
    Locked<SpinLock> lock(shard.lock);
    sum += shard.sums[device_index].units_and_users >> 32;
  }
  return sum;
}

std::string_view LiveMap::Shard::find_broken_invariant() const {
  if (const std::string_view broken = table.check_invariants(); !broken.empty()) return broken;
  std::string_view broken;
  Sums of_entries[layout::kMaxDevices] = {};
  table.for_each([&](const Allocation& entry) {
    if (entry.device_index >= layout::kMaxDevices || !devices[entry.device_index]) {
      broken = "every allocation is on a device that was added";
      return;
    }
    if (entry.users == 0) broken = "every allocation has a user";
    if (entry.leaving > entry.users) broken = "no more users are leaving than there are";
    of_entries[entry.device_index].units_and_users += sum_of(entry);
    of_entries[entry.device_index].managed += managed_units(entry);
  });
  if (!broken.empty()) return broken;
  for (uint32_t i = 0; i < layout::kMaxDevices; ++i) {
    if (!devices[i]) continue;
    if (sums[i].units_and_users != of_entries[i].units_and_users) {
      return "a device's sum is that of its entries";
    }
    if (sums[i].managed != of_entries[i].managed) {
      return "a device's managed units are those of its entries";
    }
  }
  return {};
}

std::string_view LiveMap::check_invariants() {
  for (Shard& shard : shards_) {
    Locked<SpinLock> lock(shard.lock);
    std::string_view broken = shard.find_broken_invariant();
    shard.table.for_each([&](const Allocation& entry) {
      if (&shard_of(entry.key) != &shard) broken = "every allocation is in the shard of its key";
    });
    if (!broken.empty()) return broken;
  }
  return {};
}

LiveMap::LockedView::LockedView(LiveMap& map) : map_(map) {
  for (Shard& shard : map_.shards_) shard.lock.lock();
}

LiveMap::LockedView::~LockedView() {
  for (Shard& shard : map_.shards_) shard.lock.unlock();
}

uint64_t LiveMap::LockedView::units(int device_index) const {
  uint64_t sum = 0;
  for (const Shard& shard : map_.shards_)
    sum += shard.sums[device_index].units_and_users & UINT32_MAX;
  return sum;
}

uint64_t LiveMap::LockedView::managed(int device_index) const {
  uint64_t sum = 0;
  for (const Shard& shard : map_.shards_) sum += shard.sums[device_index].managed;
  return sum;
}

uint64_t LiveMap::LockedView::changes() const {
  uint64_t sum = 0;
  for (const Shard& shard : map_.shards_) sum += shard.changes;
  return sum;
}

}  // namespace fracgpu
