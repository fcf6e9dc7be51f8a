// Memory pools of the driver: the charge of each, and how to ask what it holds.
//
// A pool grows and shrinks by itself, in chunks. It is therefore charged by what the driver reports
// as reserved, and not by what calls request. Memory of CUDA graphs is a pool in this sense too.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fracgpu/ledger_layout.h"
#include "shim/base/hash_table.h"
#include "shim/base/invariants.h"
#include "shim/base/spin_lock.h"

namespace fracgpu {

// What a vendor's driver can do with a pool. `key` is the handle, or another key by which the
// vendor's hooks entered the pool.
struct PoolDriver {
  bool (*reserved)(uint64_t key, uint64_t& bytes);  // false: the driver does not report it
  void (*trim)(uint64_t key);                       // gives back unused memory
  // The bytes that allocations use; null, or false: the driver does not report it.
  bool (*used)(uint64_t key, uint64_t& bytes) = nullptr;
};

struct Pool {
  uint64_t key = 0;
  uint64_t units = 0;    // charged
  uint64_t version = 0;  // of `units`: a reading from before another settlement is stale
  const PoolDriver* driver = nullptr;
  int device_index = 0;
  bool exported = false;  // other processes may hold memory of it
  bool by_chunk = false;  // exported; each of its chunks is listed by itself
  bool reusing = false;   // its one user relies on its not growing
  unsigned users = 0;     // threads that are asking the driver about it
  unsigned keepers = 0;   // threads that need the charge as it is
  uint64_t pledged = 0;   // units reserved for growth by calls whose growth is not charged yet
  uint64_t lent = 0;      // of `pledged`: in `units` already, as another call was charged first
  uint64_t falls = 0;     // how often the charge has fallen
};

// Any thread may call any function: each takes the table's lock, and none calls out with it held.
class PoolTable {
 public:
  // Copies the pool with this key to `pool`. False: not known.
  bool find(uint64_t key, Pool& pool);

  // The same for asking the driver about it: the pool is not removed, and so not destroyed, before
  // `end_use`. Waits while one thread uses it alone.
  bool begin_use(uint64_t key, Pool& pool);
  // Returns the part of the `pledge` that is already in the charge.
  uint64_t end_use(const Pool& known, uint64_t pledge = 0);
  // The same for an allocation from the pool. It could get the memory that a lone user relies on,
  // so it may not begin while that one is in the driver: it waits up to ten seconds for its end.
  // `pledge`: the units that the caller has reserved for growth, until `end_use` with as many.
  enum class Access { granted, unknown, refused };
  Access begin_allocation(uint64_t key, Pool& pool, uint64_t pledge = 0);
  // Also sets the charge to `units`, if no other thread has set it since `known` was copied. While
  // the charge is kept, sets it to the charge so far plus `in_hand`, if that is more. The caller
  // can use these two and what other callers have pledged. Their calls make the pool grow at once,
  // and see each other's growth: the first one to be charged borrows what it lacks, and the others
  // have as much less in hand. `pledge`: the caller's own pledge, which ends.
  struct Settled {
    bool is_done = false;  // else another thread has, or the pool is gone: the use has ended
    uint64_t missing = 0;  // not 0: too little in hand; the use goes on
    uint64_t units = 0;    // the charge
    uint64_t rest = 0;     // in hand
  };
  Settled end_use(const Pool& known, uint64_t units, uint64_t in_hand, uint64_t pledge);
  // The same if the charge is `units` already and nothing of the pledge is lent, as at nearly every
  // end: all units in hand are left. False: nothing is done.
  bool end_use_unchanged(const Pool& known, uint64_t units, uint64_t pledge);

  // A use by one thread alone: no other thread allocates from the pool, and its charge stays
  // unchanged, until `end_use`. The caller must have no use of it. False, after a wait, if others
  // use it all the time, or it is not known.
  bool begin_reuse(uint64_t key, Pool& pool);

  // Pledges without a use, or pledges more.
  void pledge(uint64_t key, uint64_t units);

  // From here to `end_keep` the charge does not fall: a thread that settles it leaves the charge,
  // and what was reserved for growth, to the last keeper. Copies the pool to `pool`; false: not
  // known.
  bool begin_keep(uint64_t key, Pool& pool);
  void end_keep(uint64_t key);

  // Adds a pool that is not known yet, with nothing charged. False: out of host memory.
  bool add(uint64_t key, int device_index, const PoolDriver& driver);

  // Marks the pool as exported. True with a copy in `pool` the first time.
  bool mark_exported(uint64_t key, bool by_chunk, Pool& pool);

  // Removes the pool once no thread uses it, for which it waits. The caller must have no use of it.
  // Copies the pool to `pool`, with which `put_back` undoes the removal.
  bool remove(uint64_t key, Pool& pool);
  void put_back(const Pool& pool);

  // Copies the keys of at most `capacity` pools on the device index, without the first `seen` ones.
  // Returns how many.
  size_t keys(int device_index, size_t seen, uint64_t* keys, size_t capacity);

  // Whether there is any pool; costs one comparison.
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

  // The units charged for the device's pools. `changes` differs from an earlier value if any charge
  // changed, and while one is kept, which may be more than what the driver has.
  void sum(int device_index, uint64_t& units, uint64_t& changes);

  // The first invariant that does not hold, in words, or nothing; see base/invariants.h.
  std::string_view check_invariants();

 private:
  friend class InvariantScope<PoolTable>;
  friend struct TableCorrupter;  // a unit test, which breaks each invariant
  std::string_view find_broken_invariant() const;
  size_t slots() const { return pools_.slots(); }

  SpinLock lock_;
  HashTable<Pool, 16> pools_;
  std::atomic<size_t> count_{0};
  uint64_t changes_ = 0;
  [[no_unique_address]] InvariantTimer timer_;
};

}  // namespace fracgpu
