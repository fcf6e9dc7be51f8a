// Charges pools by what their driver reports; see pools.h and pool_table.h.
#include "shim/charge/pools.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace fracgpu {

using layout::units_for;

namespace {

// If pools come or go meanwhile, one that stays may be visited twice or left out.
template <typename Visit>
void for_each_pool(Process& process, int device_index, Visit visit) {
  if (process.pools.empty()) return;
  // The keys are on the stack: 512 bytes.
  uint64_t keys[64];
  size_t seen = 0;
  for (size_t count = std::size(keys); count == std::size(keys); seen += count) {
    count = process.pools.keys(device_index, seen, keys, std::size(keys));
    for (size_t i = 0; i < count; ++i) visit(keys[i]);
  }
}

uint64_t token_of(uint64_t pool) {
  return OpenExports::token_of(OpenExports::Of::pool, pool);
}

struct Settlement {
  uint64_t key = 0;
  bool foreseen = true;   // it has not grown by more than was reserved
  uint64_t grown = 0;     // units
  uint64_t reserved = 0;  // units
  int device_index = 0;
  // Charged units by which the pool may have grown, if its driver can no longer be asked. The
  // caller leaves them to the driver-reported usage, which takes a lock that it may already hold.
  uint64_t unknown = 0;
  // For an exported pool: charged units that the caller gives back, for the same reason.
  uint64_t released = 0;
  bool has_chunks = false;  // released ones, which may be free
};

// `in_use`: the pool at the start of the caller's use of it, which ends here; or null.
Settlement settle(Process& process, uint64_t key, Reservation* reservation, uint64_t pledge,
                  const Pool* in_use = nullptr) {
  uint64_t in_hand = reservation != nullptr ? reservation->take() : 0;
  Settlement result{.key = key,
                    .device_index = reservation != nullptr ? reservation->device_index() : 0};
  Pool begun;
  for (bool used = in_use != nullptr, settled = false;
       !settled && (used || process.pools.begin_use(key, begun)); used = false) {
    const Pool& pool = used ? *in_use : begun;
    result.device_index = pool.device_index;
    uint64_t bytes = 0;
    if (!pool.driver->reserved(key, bytes)) {
      // It may have grown by the whole reservation.
      result.unknown = in_hand - process.pools.end_use(pool, pledge);
      return result;
    }
    const uint64_t now = units_for(bytes);
    if (!pool.exported && process.pools.end_use_unchanged(pool, now, pledge)) {
      result.reserved = now;
      break;
    }
    // Before the charge falls: after that, no thread may rely on a hole.
    if (now < pool.units && pool.keepers == 0) process.pool_blocks.forget_holes(key);
    PoolTable::Settled end = process.pools.end_use(pool, now, in_hand, pledge);
    // Memory that was not foreseen is charged before it is entered: the ledger must never show less
    // than there is, and no reading may take the difference for a call that is over.
    for (; end.missing > 0; end = process.pools.end_use(pool, now, in_hand, pledge)) {
      process.ledger.charge_taken(result.device_index, end.missing);
      in_hand += end.missing;
      result.foreseen = false;
    }
    settled = end.is_done;
    if (!settled) continue;
    result.grown = end.units - std::min(end.units, pool.units);
    result.reserved = now;
    in_hand = end.rest;
    if (!pool.exported) continue;
    if (pool.by_chunk) {
      result.has_chunks = process.overhead[pool.device_index].counted_twice.load() != 0;
      in_hand = pay_for_chunks(process, pool.device_index, in_hand);
      continue;
    }
    // Importers may hold what the pool has released. No call reports how much it released unseen
    // while it grew. That is taken into account for this process's own imports only.
    const bool may_have_it = process.imports.imported_of_self(pool.device_index) > 0;
    const uint64_t fallen = pool.units - std::min(pool.units, end.units);
    result.released = may_have_it ? in_hand : std::min(in_hand, fallen);
    in_hand -= result.released;
    process.ledger.add_exported(pool.device_index, end.units + result.released);
    process.ledger.drop_exported(pool.device_index, pool.units);
  }
  if (in_hand > 0) process.ledger.release(result.device_index, in_hand);
  return result;
}

Process& process_of(Process& process) {
  return process;
}
Process& process_of(const OverheadLock& lock) {
  return lock.process();
}

// Memory that an exported pool has released stays charged while a descriptor holds it. Otherwise a
// reading shows what is free. True if a descriptor holds it. libcuda 535.261.03 never closes its
// own copy of the pool's descriptor; 550.163.01 closes it with the pool. `Caller`: a Process, or
// the OverheadLock that the caller holds.
template <typename Caller>
bool keep_or_defer(Caller& caller, uint64_t pool, int device_index, uint64_t units) {
  const bool is_kept = process_of(caller).open_exports.keep(token_of(pool), device_index, units);
  if (!is_kept) defer_exported(caller, device_index, units);
  return is_kept;
}

template <typename Caller>
void leave_to_reading(Caller& caller, const Settlement& settlement) {
  const int device_index = settlement.device_index;
  if (settlement.unknown > 0) defer_to_reported_usage(caller, device_index, settlement.unknown);
  if (settlement.released > 0)
    keep_or_defer(caller, settlement.key, device_index, settlement.released);
  if (settlement.has_chunks) give_back_closed_exports(caller);
}

bool settle_pool(Process& process, const Settlement& settlement) {
  leave_to_reading(process, settlement);
  if (settlement.released > 0) settle_overhead(process, settlement.device_index);
  return settlement.foreseen;
}

// `settle_one(key)` charges a trimmed pool.
template <typename SettleOne>
bool trim(Process& process, int device_index, SettleOne settle_one) {
  if (process.pools.empty()) return false;
  uint64_t before = 0, after = 0, changes = 0;
  process.pools.sum(device_index, before, changes);
  for_each_pool(process, device_index, [&](uint64_t key) {
    Pool pool;
    if (!process.pools.begin_use(key, pool)) return;
    if (pool.units > 0 && pool.keepers == 0) pool.driver->trim(key);
    process.pools.end_use(pool);
    settle_one(key);
  });
  process.pools.sum(device_index, after, changes);
  return after < before;
}

}  // namespace

void note_exported_pool(Process& process, uint64_t key, int fd, bool by_chunk) {
  if (fd >= 0 && !by_chunk) process.open_exports.watch(fd, token_of(key));
  Pool pool;
  if (process.pools.mark_exported(key, by_chunk, pool) && !by_chunk)
    process.ledger.add_exported(pool.device_index, pool.units);
}

uint64_t pay_for_chunks(Process& process, int device_index, uint64_t in_hand) {
  const uint64_t due = process.overhead[device_index].counted_twice.exchange(0);
  if (due > in_hand) process.ledger.charge_taken(device_index, due - in_hand);
  return in_hand - std::min(in_hand, due);
}

bool settle_pool(Process& process, uint64_t key, Reservation* reservation, uint64_t pledge) {
  return settle_pool(process, settle(process, key, reservation, pledge));
}

void PoolUse::begin(uint64_t reserved) {
  const PoolTable::Access access = process_.pools.begin_allocation(key_, pool_, reserved);
  used_ = access == PoolTable::Access::granted;
  refused_ = access == PoolTable::Access::refused;
  pledge_ = used_ ? reserved : 0;
}

void PoolUse::pledge(uint64_t units) {
  process_.pools.pledge(key_, units);
  pledge_ += units;
}

void PoolUse::end() {
  if (used_) process_.pools.end_use(pool_, pledge_);
  used_ = false;
  pledge_ = 0;
}

template <typename Fits>
bool PoolUse::begin_reuse_if(Fits fits_if_whole) {
  const auto fits = [&] {
    return process_.pool_blocks.is_whole(key_, pool_.units * layout::kUnit) && fits_if_whole();
  };
  // An importer may hold what an exported pool has released unseen, so it is not free to be taken
  // again.
  if (!used_ || pool_.exported || !fits()) return false;
  end();
  used_ = process_.pools.begin_reuse(key_, pool_);
  // Other threads may have taken it meanwhile.
  if (used_ && !pool_.exported && fits()) return true;
  end();
  begin(0);
  return false;
}

bool PoolUse::begin_alone() {
  end();
  used_ = process_.pools.begin_reuse(key_, pool_);
  return used_;
}

bool PoolUse::begin_reuse(uint64_t stream, uint64_t bytes) {
  return begin_reuse_if([&] { return process_.pool_blocks.fits(key_, stream, bytes); });
}

bool PoolUse::begin_reuse_after_event(uint64_t stream, uint64_t bytes) {
  return begin_reuse_if([&] {
    return process_.pool_blocks.fits_after_event(key_, stream, bytes, process_.contexts.epoch());
  });
}

bool PoolUse::begin_extension(uint64_t bytes, uint64_t& more) {
  if (process_.pool_growth.load(std::memory_order_relaxed) != Process::PoolGrowth::extends)
    return false;
  return begin_reuse_if([&] {
    const uint64_t tail = process_.pool_blocks.last_tail(key_);
    more = bytes - std::min(bytes, tail);
    return tail > 0 && pool_growth_units(more) < pool_growth_units(bytes);
  });
}

bool PoolUse::end_in_hole(uint64_t address, uint64_t bytes, Reservation& reservation) {
  // A pool gives memory back unseen when the program waits for its streams. So each 16th call asks
  // the driver all the same, and so does every call while a recorder is on.
  constexpr uint64_t kAsking = 16;
  if (!used_ || pool_.exported || pool_.version % kAsking == 0 || process_.recorder.is_on())
    return false;
  entered_ = process_.pool_blocks.take_hole(key_, address, bytes, pool_.units * layout::kUnit);
  // If another thread has settled the charge meanwhile, the hole may have been forgotten before
  // that.
  if (!entered_ || !process_.pools.end_use_unchanged(pool_, pool_.units, pledge_)) return false;
  used_ = false;
  pledge_ = 0;
  reservation.keep(0);
  return true;
}

PoolUse::Outcome PoolUse::settle(Reservation* reservation) {
  const Settlement settlement =
      fracgpu::settle(process_, key_, reservation, pledge_, used_ ? &pool_ : nullptr);
  used_ = false;
  pledge_ = 0;
  return {settle_pool(process_, settlement), settlement.grown * layout::kUnit,
          settlement.reserved * layout::kUnit};
}

bool settle_pool(const OverheadLock& lock, uint64_t key) {
  const Settlement settlement = settle(lock.process(), key, nullptr, 0);
  leave_to_reading(lock, settlement);
  return settlement.foreseen;
}

void settle_pools(Process& process, int device_index) {
  for_each_pool(process, device_index, [&](uint64_t key) { settle_pool(process, key, nullptr); });
}

void settle_pools(const OverheadLock& lock, int device_index) {
  for_each_pool(lock.process(), device_index, [&](uint64_t key) { settle_pool(lock, key); });
}

void record_earlier_use(Process& process, int device_index) {
  for_each_pool(process, device_index, [&](uint64_t key) {
    Pool pool;
    uint64_t bytes = 0;
    if (!process.pools.begin_use(key, pool)) return;
    const bool is_known = pool.driver->used != nullptr && pool.driver->used(key, bytes);
    process.pools.end_use(pool);
    if (!is_known || bytes == 0) return;
    process.recorder.add({.type = ring::Type::allocated,
                          .kind = ring::Kind::pool,
                          .device = static_cast<uint8_t>(device_index),
                          .address = ring::pool_key(key),
                          .bytes = bytes,
                          .owner = key});
  });
}

bool trim_pools(Process& process, int device_index) {
  return trim(process, device_index, [&](uint64_t key) { settle_pool(process, key, nullptr); });
}

bool trim_pools(const OverheadLock& lock, int device_index) {
  return trim(lock.process(), device_index, [&](uint64_t key) { settle_pool(lock, key); });
}

void charge_destroyed_pool(Process& process, const Pool& pool, bool in_use) {
  if (pool.units == 0) return;
  uint64_t units = pool.units;
  if (pool.by_chunk) {
    units = pay_for_chunks(process, pool.device_index, units);
    give_back_closed_exports(process);
    if (units == 0) return;
  }
  // Even an unused pool may keep memory until work under way on it is done.
  if (!pool.exported || pool.by_chunk) {
    defer_to_reported_usage(process, pool.device_index, units);
  } else if (keep_or_defer(process, pool.key, pool.device_index, units)) {
    return;
  }
  if (!settle_overhead(process, pool.device_index) && !in_use)
    release_overhead(process, pool.device_index, units);
}

}  // namespace fracgpu
