// The live allocations of this process: what is charged for each, found by its key in O(1).
//
// There are 64 page maps, each with its own lock, so that growing one stalls no thread for long. A
// whole allocation is taken out before the driver frees it, and put back if the driver refuses. So
// the map is right even if the driver hands the same address to another thread in between. A chunk
// is different: a user counts until the driver has freed it, since the driver keeps the whole chunk
// until then.
#pragma once

#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fracgpu/ledger_layout.h"
#include "shim/base/invariants.h"
#include "shim/base/lazy_array.h"
#include "shim/base/spin_lock.h"
#include "shim/tracking/chunk_occupancy.h"
#include "shim/tracking/page_map.h"

namespace fracgpu {

// Keys: the device address of a whole allocation, or `chunk_key` of the 2 MiB chunk that small
// allocations share. 0 is no key. Aligned, so that no entry is in two cache lines.
struct alignas(32) Allocation {
  uint64_t key = 0;
  uint32_t units = 0;        // charged, in the ledger's units
  uint32_t users = 0;        // allocations that share the entry; 1 except for chunks
  uint32_t leaving = 0;      // number of them that the driver is freeing
  uint16_t context = 0;      // id in the process's ContextTable; freed with that context
  uint8_t device_index = 0;  // device, as the ledger numbers them
  uint8_t pool = 0;          // of a block: its pool, see BlockCache
  bool lingers = false;      // a user of the chunk was freed in stream order, at an unknown moment
  bool exported = false;     // other processes may hold it too
  bool managed = false;      // it may be on the host, where the driver counts none of it
  bool apart = false;        // of a block: its pool neither uses nor counts it any more
  // For a small array: OverheadReservation::unread_since. For a chunk whose parts are tracked: its
  // number in ChunkOccupancies.
  uint32_t detail = 0;
};

// Any thread may call any function. Each takes the lock of one shard at a time. Only LockedView
// takes all of them in order: while it exists, its thread may call nothing else here.
class LiveMap {
 public:
  enum class Added { fresh, shared, out_of_memory };

  // Adds a whole allocation. An entry already there is stale (the driver has handed its address out
  // again). It is copied to `displaced`, which is not written otherwise, and the caller gives back
  // its charge.
  Added add(const Allocation& allocation, Allocation& displaced);

  // Counts one more user of the chunk with this key; `fresh` if it is the first. An entry of
  // another context or pool is stale, even if a user of it may still be leaving, and is displaced
  // as in `add`. So is an exported entry whose users are all leaving. `part`: the user's part of
  // the chunk, if it is tracked.
  Added add_user(const Allocation& chunk, Allocation& displaced, const ChunkPart& part = {});

  // Whether a chunk like this one (its context, device, pool and kind of memory) has a hole of
  // `units`, and users that are not leaving. Checks every chunk: 50 ns each.
  [[gnu::cold]] bool has_hole(const Allocation& like, uint32_t units);

  // Adds a user without a part to such a chunk, so that the chunk's charge is not given back before
  // that user is dropped (`begin_drop` and `finish_drop`). True with a copy in `pinned`.
  [[gnu::cold]] bool pin_hole(const Allocation& like, uint32_t units, Allocation& pinned);

  // True with a copy in `found` if it is there, leaving or not.
  bool find(uint64_t key, Allocation& found);

  // Marks the entry as exported, with a copy in `entry`. True the first time.
  bool mark_exported(uint64_t key, Allocation& entry);

  // Marks the block as no longer counted by its pool. True the first time.
  bool mark_apart(uint64_t key);

  // Marks one user of a chunk as leaving, before the driver frees it. True with a copy in `found`.
  // Also false if all its users are already leaving: the chunk may be gone then, and the memory at
  // its addresses does not belong to it.
  bool begin_drop(uint64_t key, Allocation& found);

  // The driver has freed the user of `chunk`, which is what `begin_drop` found, or (`abandon_drop`)
  // has refused to. Returns the units to give back: 0 while other users remain, or if the chunk no
  // longer belongs to the same context and pool. Copies the entry to `gone` if that was its last
  // user. `lingers`: the driver frees that user later. `first`: the unit at which the user begins
  // in the chunk.
  uint32_t finish_drop(const Allocation& chunk, Allocation* gone = nullptr, bool lingers = false,
                       uint32_t first = ChunkPart::kNowhere);
  void abandon_drop(const Allocation& chunk);

  // Removes a whole allocation. True with a copy in `taken`.
  bool take(uint64_t key, Allocation& taken);

  // `take` of a whole allocation at the address, otherwise `begin_drop` of the chunk there.
  bool take_or_begin_drop(uint64_t address, uint64_t chunk, Allocation& found);

  // Removes every entry of a context and passes it to `visit(const Allocation&)`.
  template <typename Visit>
  void take_context(uint16_t context, Visit visit) {
    for (Shard& shard : shards_) {
      Locked<SpinLock> lock(shard.lock);
      const InvariantScope scope(shard, shard.timer);
      shard.table.erase_if([&](const Allocation& entry) {
        if (entry.context != context) return false;
        visit(entry);
        shard.forget(entry);
        drop_occupancy(entry);
        return true;
      });
    }
  }

  // Called once, before the first allocation on the device.
  void add_device(int device_index);

  // Calls visit(const Allocation&) for every entry. One shard at a time is locked meanwhile.
  template <typename Visit>
  void for_each(Visit visit) {
    for (Shard& shard : shards_) {
      Locked<SpinLock> lock(shard.lock);
      shard.table.for_each(visit);
    }
  }

  // How many allocations live on the device index: each user of a chunk is one.
  uint64_t count(int device_index);

  // The first invariant that does not hold, in words, or nothing; see base/invariants.h. Locks one
  // shard after the other.
  std::string_view check_invariants();

  // Holds the map still: no entry comes or goes while this exists.
  class LockedView {
   public:
    explicit LockedView(LiveMap& map);
    ~LockedView();
    LockedView(const LockedView&) = delete;
    LockedView& operator=(const LockedView&) = delete;

    uint64_t units(int device_index) const;    // of all entries that are not leaving
    uint64_t managed(int device_index) const;  // of those, managed memory
    uint64_t changes() const;  // differs from an earlier value if anything came or went

   private:
    LiveMap& map_;
  };

 private:
  // While a million allocations were added, the longest stall was 20 ms with 64 hash tables, when
  // one grew; 216 ms with one, 56 with 16, 12 with 256. A page map grows by a 32nd of that. A
  // reading locks all of them: 0.4 us, 3.7 us with 256. Adding and finding takes the same with 1 to
  // 1,024.
  static constexpr int kShardBits = 6;

  friend struct TableCorrupter;  // a unit test, which breaks each invariant

  using Table = PageMap<Allocation, kShardBits>;

  struct alignas(64) Shard {
    // These maintain `sums` and `changes`.
    void enter(Allocation& entry, const Allocation& allocation);
    void forget(const Allocation& entry);
    [[gnu::cold]] void displace(Allocation& entry, Allocation& displaced);
    void count_units(const Allocation& entry, int sign);
    void add_user(Allocation& entry);
    void begin_drop(Allocation& entry);
    void finish_drop(Allocation& entry);
    void abandon_drop(Allocation& entry);
    // The map's functions of these names, with `lock` held.
    bool begin_drop_of(uint64_t key, Allocation& found);
    bool take(uint64_t key, Allocation& taken);

    std::string_view find_broken_invariant() const;  // with `lock` held
    size_t slots() const { return table.slots(); }

    SpinLock lock;
    uint64_t changes = 0;
    Table table;
    struct Sums {
      // Units of the entries that are not leaving; in the upper half, the users of all entries. One
      // number, so that calls pay for one addition. A process holds less than 2^32 units on a
      // device.
      uint64_t units_and_users = 0;
      uint64_t managed = 0;  // units
    };
    static_assert(layout::kMaxUnits < UINT32_MAX);
    LazyArray<Sums, layout::kMaxDevices> sums;  // of the devices that were added
    std::bitset<layout::kMaxDevices> devices;
    [[no_unique_address]] InvariantTimer timer;
  };

  // Calls visit(shard, entry) for a chunk that has such a hole. False: there is none.
  template <typename Visit>
  bool any_hole(const Allocation& like, uint32_t units, Visit visit);

  static bool is_chunk(const Allocation& entry) { return (entry.key & 1) != 0; }
  void drop_occupancy(const Allocation& entry) {
    if (is_chunk(entry)) occupancies_.drop(entry.detail);
  }

  Shard& shard_of(uint64_t key) {
    return shards_[hash_of(Table::neighbourhood(key)) & ((1 << kShardBits) - 1)];
  }

  // Whether a whole allocation ever began within a page. Nearly none does, so that most addresses
  // in a chunk need no look-up of a whole allocation.
  std::atomic<bool> any_within_page_{false};
  ChunkOccupancies occupancies_;
  Shard shards_[1 << kShardBits];
};

}  // namespace fracgpu
