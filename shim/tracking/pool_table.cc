// A table under a lock; see pool_table.h.
#include "shim/tracking/pool_table.h"

#include <algorithm>
#include <climits>

#include "shim/base/backoff.h"

namespace fracgpu {
namespace {

// How long a thread waits for one that is in a call of the driver, so that no thread waits for
// ever. Loops of four threads on one pool are the same with 10 to 100,000 yields, which are 87 ms
// on an idle core, even if the driver takes 2 ms; with 0, all but the first allocation are refused.
constexpr uint64_t kLongCall_ms = 100;

// An allocation takes the driver microseconds, or as long as the work before it. If a thread does
// not come back from one, the others could do nothing in the driver either.
constexpr uint64_t kLongestCall_ms = 10'000;

}  // namespace

bool PoolTable::find(uint64_t key, Pool& pool) {
  Locked<SpinLock> lock(lock_);
  const Pool* known = pools_.find(key);
  if (known != nullptr) pool = *known;
  return known != nullptr;
}

bool PoolTable::add(uint64_t key, int device_index, const PoolDriver& driver) {
  Locked<SpinLock> lock(lock_);
  const InvariantScope scope(*this, timer_);
  Pool* pool = pools_.insert(key);
  if (pool == nullptr) return false;
  if (pool->driver == nullptr) {
    pool->device_index = device_index;
    pool->driver = &driver;
    ++changes_;
  }
  count_.store(pools_.size(), std::memory_order_relaxed);
  return true;
}

bool PoolTable::mark_exported(uint64_t key, bool by_chunk, Pool& pool) {
  Locked<SpinLock> lock(lock_);
  const InvariantScope scope(*this, timer_);
  Pool* known = pools_.find(key);
  if (known == nullptr || known->exported) return false;
  known->exported = true;
  known->by_chunk = by_chunk;
  ++known->version;
  pool = *known;
  return true;
}

bool PoolTable::begin_use(uint64_t key, Pool& pool) {
  Backoff backoff;
  for (bool waits = true;; waits = backoff.wait_at_most(kLongCall_ms)) {
    Locked<SpinLock> lock(lock_);
    const InvariantScope scope(*this, timer_);
    Pool* known = pools_.find(key);
    if (known == nullptr) return false;
    if (known->reusing && waits) continue;
    ++known->users;
    pool = *known;
    // After a wait in vain, the charge is left to the lone user, which relies on it.
    if (known->reusing) ++pool.keepers;
    pool.reusing = false;
    return true;
  }
}

PoolTable::Access PoolTable::begin_allocation(uint64_t key, Pool& pool, uint64_t pledge) {
  Backoff backoff;
  do {
    Locked<SpinLock> lock(lock_);
    const InvariantScope scope(*this, timer_);
    Pool* known = pools_.find(key);
    if (known == nullptr) return Access::unknown;
    if (known->reusing) continue;
    ++known->users;
    known->pledged += pledge;
    pool = *known;
    return Access::granted;
  } while (backoff.wait_at_most(kLongestCall_ms));
  return Access::refused;
}

bool PoolTable::begin_reuse(uint64_t key, Pool& pool) {
  Backoff backoff;
  do {
    Locked<SpinLock> lock(lock_);
    const InvariantScope scope(*this, timer_);
    Pool* known = pools_.find(key);
    if (known == nullptr) return false;
    if (known->users > 0) continue;
    known->users = 1;
    known->reusing = true;
    pool = *known;
    return true;
  } while (backoff.wait_at_most(kLongCall_ms));
  return false;
}

bool PoolTable::begin_keep(uint64_t key, Pool& pool) {
  Locked<SpinLock> lock(lock_);
  const InvariantScope scope(*this, timer_);
  Pool* known = pools_.find(key);
  if (known == nullptr) return false;
  ++known->keepers;
  ++known->version;  // a settlement that is under way begins again
  pool = *known;
  return true;
}

void PoolTable::end_keep(uint64_t key) {
  Locked<SpinLock> lock(lock_);
  const InvariantScope scope(*this, timer_);
  if (Pool* known = pools_.find(key); known != nullptr) --known->keepers;
}

void PoolTable::pledge(uint64_t key, uint64_t units) {
  Locked<SpinLock> lock(lock_);
  const InvariantScope scope(*this, timer_);
  if (Pool* known = pools_.find(key); known != nullptr) known->pledged += units;
}

uint64_t PoolTable::end_use(const Pool& known, uint64_t pledge) {
  Locked<SpinLock> lock(lock_);
  const InvariantScope scope(*this, timer_);
  Pool* pool = pools_.find(known.key);
  if (pool == nullptr) return 0;
  --pool->users;
  if (known.reusing) pool->reusing = false;
  const uint64_t owed = std::min(pool->lent, pledge);
  pool->lent -= owed;
  pool->pledged -= pledge;
  return owed;
}

PoolTable::Settled PoolTable::end_use(const Pool& known, uint64_t units, uint64_t in_hand,
                                      uint64_t pledge) {
  Locked<SpinLock> lock(lock_);
  const InvariantScope scope(*this, timer_);
  Pool* pool = pools_.find(known.key);
  if (pool == nullptr) return {};
  const uint64_t owed = std::min(pool->lent, pledge);
  const uint64_t own = pool->units + in_hand - owed;
  if (known.keepers > 0) units = std::max(units, own);
  const uint64_t unlent = pool->pledged - pledge - (pool->lent - owed);
  const uint64_t borrowed = std::min(units - std::min(units, own), unlent);
  if (units > own + borrowed) return {.missing = units - own - borrowed};
  --pool->users;
  if (known.reusing) pool->reusing = false;
  if (pool->version != known.version) return {};
  if (units != pool->units) ++changes_;
  if (units < pool->units) ++pool->falls;
  pool->units = units;
  pool->pledged -= pledge;
  pool->lent += borrowed - owed;
  ++pool->version;
  return {.is_done = true, .units = units, .rest = own + borrowed - units};
}

bool PoolTable::end_use_unchanged(const Pool& known, uint64_t units, uint64_t pledge) {
  Locked<SpinLock> lock(lock_);
  const InvariantScope scope(*this, timer_);
  Pool* pool = pools_.find(known.key);
  if (pool == nullptr || pool->version != known.version || pool->units != units ||
      pool->lent != 0 || known.keepers > 0) {
    return false;
  }
  --pool->users;
  if (known.reusing) pool->reusing = false;
  pool->pledged -= pledge;
  ++pool->version;
  return true;
}

bool PoolTable::remove(uint64_t key, Pool& pool) {
  Backoff backoff;
  for (bool waits = true;; waits = backoff.wait_at_most(kLongestCall_ms)) {
    Locked<SpinLock> lock(lock_);
    const InvariantScope scope(*this, timer_);
    Pool* known = pools_.find(key);
    if (known == nullptr) return false;
    if (known->users > 0 && waits) continue;
    pool = *known;
    pools_.erase(known);
    ++changes_;
    count_.store(pools_.size(), std::memory_order_relaxed);
    return true;
  }
}

void PoolTable::put_back(const Pool& pool) {
  Locked<SpinLock> lock(lock_);
  const InvariantScope scope(*this, timer_);
  if (Pool* entry = pools_.insert(pool.key); entry != nullptr) *entry = pool;
  ++changes_;
  count_.store(pools_.size(), std::memory_order_relaxed);
}

size_t PoolTable::keys(int device_index, size_t seen, uint64_t* keys, size_t capacity) {
  Locked<SpinLock> lock(lock_);
  size_t count = 0;
  pools_.for_each([&](const Pool& pool) {
    if (pool.device_index != device_index) return;
    if (seen > 0) {
      --seen;
    } else if (count < capacity) {
      keys[count++] = pool.key;
    }
  });
  return count;
}

void PoolTable::sum(int device_index, uint64_t& units, uint64_t& changes) {
  Locked<SpinLock> lock(lock_);
  units = 0;
  pools_.for_each([&](const Pool& pool) {
    if (pool.device_index != device_index) return;
    units += pool.units;
    if (pool.keepers > 0) ++changes_;
  });
  changes = changes_;
}

std::string_view PoolTable::find_broken_invariant() const {
  if (const std::string_view broken = pools_.check_invariants(); !broken.empty()) return broken;
  if (count_.load(std::memory_order_relaxed) != pools_.size()) {
    return "the pool count that is read without the lock is that of the table";
  }
  std::string_view broken;
  pools_.for_each([&](const Pool& pool) {
    if (pool.driver == nullptr) broken = "every pool has a driver to ask about it";
    if (pool.device_index < 0 || pool.device_index >= static_cast<int>(layout::kMaxDevices)) {
      broken = "every pool is on a device of the ledger";
    }
    if (pool.lent > pool.pledged) broken = "no more is lent of a pool's pledges than there is";
    // Below zero it would be a very large number.
    if (pool.users > INT_MAX || pool.keepers > INT_MAX)
      broken = "no use of a pool ends that has not begun";
  });
  return broken;
}

std::string_view PoolTable::check_invariants() {
  Locked<SpinLock> lock(lock_);
  return find_broken_invariant();
}

}  // namespace fracgpu
