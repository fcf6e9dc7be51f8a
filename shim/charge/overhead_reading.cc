// Measures overhead; see overhead_reading.h.
//
// The overhead is the driver-reported usage of this process, less what calls were charged for. The
// usage is read on cold paths, one reading at a time in a process, since a reading costs
// milliseconds. A reading means nothing if another thread allocates or frees meanwhile. It
// therefore counts only if no call was under way before, during and after it. That check costs the
// calls nothing: while one is under way, the ledger holds more for this process than the sum of its
// live allocations and its overhead.
//
// Managed memory is charged in full, and NVIDIA's driver counts none of it. Other drivers count as
// much of it as is on the device. With any of it, their readings give two bounds for the overhead
// instead of one number. Freed memory that descriptors hold is counted for no process, unless this
// process may have imported it.
#include "shim/charge/overhead_reading.h"

#include <algorithm>

#include "shim/base/clock.h"
#include "shim/base/no_cancellation.h"
#include "shim/charge/pools.h"
#include "shim/charge/upper_call.h"
#include "shim/vendor/backend.h"

namespace fracgpu {

using layout::units_for;

void publish_overhead(Process& process, int device_index, uint64_t units) {
  units += process.overhead[device_index].uncounted.load(std::memory_order_relaxed);
  process.ledger.set_overhead(device_index, units);
  process.recorder.add({.type = ring::Type::level,
                        .kind = ring::Kind::overhead,
                        .device = static_cast<uint8_t>(device_index),
                        .taken = units * layout::kUnit,
                        .owner = static_cast<uint64_t>(device_index) + 1});
}

namespace {

// `most` units of freed exports have left this process's usage: importers may still hold them.
// Returns the units that are no longer charged to this process, less than `most` if the ledger
// fails.
uint64_t free_deferred_exports(const OverheadLock& lock, int device_index, uint64_t most) {
  Process& process = lock.process();
  uint64_t left = most;
  bool works = true;
  const auto free = [&](uint64_t units, uint32_t number) {
    works = works && process.ledger.free_exported(device_index, units, number);
    if (works) left -= units;
    return works;
  };
  uint64_t unlisted = process.overhead[device_index].exported;
  process.deferred_exports.for_each([&](const DeferredExport& each) {
    if (each.device_index == device_index) unlisted -= std::min(unlisted, each.units);
  });
  const auto free_listed = [&](bool imported) {
    process.deferred_exports.erase_if([&](DeferredExport& each) {
      const auto number = static_cast<uint32_t>(each.key);
      const uint64_t units = std::min(left, each.units);
      if (each.device_index != device_index || units == 0 ||
          process.ledger.is_imported(number) != imported || !free(units, number)) {
        return false;
      }
      each.units -= units;
      return each.units == 0;
    });
  };
  // A reading shows how many units have left, but not of which exports. Exports that importers may
  // hold stay charged, so they come first: rather too much is charged until the next reading than
  // too little.
  free_listed(true);
  if (const uint64_t units = std::min(left, unlisted); units > 0) free(units, 0);
  free_listed(false);
  process.overhead[device_index].exported -= most - left;
  return most - left;
}

}  // namespace

void charge_overhead(const OverheadLock& lock, int device_index, uint64_t units,
                     uint64_t reserved) {
  Process& process = lock.process();
  Overhead& overhead = process.overhead[device_index];
  const uint64_t before = overhead.units.load(std::memory_order_relaxed);
  const uint64_t fallen = std::min<uint64_t>(before - std::min(before, units), overhead.exported);
  const uint64_t exported = fallen > 0 ? free_deferred_exports(lock, device_index, fallen) : 0;
  units += fallen - exported;
  const uint64_t charged =
      overhead.units.exchange(units, std::memory_order_relaxed) + reserved - exported;
  overhead.unconfirmed = std::min(overhead.unconfirmed, units);
  publish_overhead(process, device_index, units);
  if (units > charged) process.ledger.charge_taken(device_index, units - charged);
  if (units < charged) process.ledger.release(device_index, charged - units);
}

void add_overhead(const OverheadLock& lock, int device_index, uint64_t units) {
  if (units == 0) return;
  Process& process = lock.process();
  Overhead& overhead = process.overhead[device_index];
  publish_overhead(process, device_index, overhead.units.fetch_add(units) + units);
  overhead.unconfirmed += units;
  overhead.exact = false;
}

namespace {

// What calls were charged for.
struct AskedFor {
  uint64_t units = 0;
  uint64_t managed = 0;                              // of `units`
  uint64_t freed = 0;                                // of `units`: held by descriptors
  uint64_t unmapped = 0;                             // of `units`: if its stream got there
  uint64_t without_object = 0;                       // of `units`: kept by mappings alone
  uint64_t changes = 0;                              // changes whenever any of it comes or goes
  BlockCache::EmptyBlocks kept[BlockCache::kPools];  // in `units` and in `changes` too

  // What the driver may not count for this process.
  uint64_t may_be_uncounted() const { return managed + freed + unmapped; }

  // Without the empty blocks, which the runtime may have released.
  uint64_t in_use() const {
    uint64_t sum = units;
    for (const BlockCache::EmptyBlocks& empty : kept) sum -= empty.blocks * BlockCache::kBlockUnits;
    return sum;
  }
};

// True if no call is between its reservation and its entry in the process's tables, or between the
// removal of its entry and giving back. `own` units are reserved by the calling thread; `unasked`
// units were not taken over yet.
bool at_rest(Process& process, int device_index, uint64_t own, AskedFor& asked,
             int64_t unasked = 0) {
  const Overhead& overhead = process.overhead[device_index];
  if (process.in_flight != 0) return false;
  asked.changes = process.in_flight_ended;
  uint64_t freed_changes = 0;
  process.open_exports.sum(device_index, asked.freed, freed_changes);
  LiveMap::LockedView view(process.allocations);
  uint64_t pooled = 0, pool_changes = 0;
  process.pools.sum(device_index, pooled, pool_changes);
  const PhysicalTable::Sum physical = process.physical.sum(device_index);
  asked.unmapped = physical.unmapped;
  asked.without_object = physical.without_object;
  asked.units = view.units(device_index) + pooled + physical.units + asked.freed;
  asked.managed = view.managed(device_index);
  for (int pool = 0; pool < BlockCache::kPools; ++pool) {
    const BlockCache::EmptyBlocks kept = asked.kept[pool] =
        process.blocks[device_index][pool].empty_blocks();
    asked.units += kept.blocks * BlockCache::kBlockUnits;
    asked.changes += kept.changes;
  }
  asked.changes += view.changes() + pool_changes + physical.changes + freed_changes;
  return overhead.unasked.load(std::memory_order_relaxed) == unasked &&
         process.ledger.held_by_self(device_index) ==
             asked.units + overhead.units.load(std::memory_order_relaxed) +
                 overhead.uncounted.load(std::memory_order_relaxed) + own +
                 static_cast<uint64_t>(unasked) + UpperCall::remaining(device_index);
}

// The driver counts `units` less than expected: the runtime has released empty blocks early, if
// there were any that may be gone. They count as overhead from now on, which the caller sets. False
// if another thread has used some since.
bool forget_empty_blocks(const OverheadLock& lock, int device_index, uint64_t units,
                         AskedFor& asked) {
  constexpr uint64_t kBlock = BlockCache::kBlockUnits;
  // Nothing shows which pool had them. If a block that is gone stayed counted, it would be given
  // back a second time when the pool releases it by the rule. So each pool is assumed to have lost
  // them all.
  for (int pool = 0; pool < BlockCache::kPools; ++pool) {
    const BlockCache::EmptyBlocks& kept = asked.kept[pool];
    const auto gone = static_cast<uint32_t>(std::min<uint64_t>(units / kBlock, kept.may_be_gone));
    if (gone == 0) continue;
    if (!lock.process().blocks[device_index][pool].forget(kept, gone)) return false;
    asked.units -= gone * kBlock;
    add_overhead(lock, device_index, gone * kBlock);
  }
  return true;
}

// Memory that the driver took by itself is ordinary overhead from now on.
void take_over_unasked(const OverheadLock& lock, int device_index) {
  Process& process = lock.process();
  Overhead& overhead = process.overhead[device_index];
  const int64_t unasked = overhead.unasked.exchange(0);
  if (unasked >= 0) return add_overhead(lock, device_index, static_cast<uint64_t>(unasked));
  const auto gone = static_cast<uint64_t>(-unasked);
  // If more is gone than there was, a reading has already seen it.
  const uint64_t most = std::min(gone, overhead.units.load(std::memory_order_relaxed));
  if (gone > most) process.ledger.charge_taken(device_index, gone - most);
  publish_overhead(process, device_index, overhead.units.fetch_sub(most) - most);
  overhead.unconfirmed = std::min(overhead.unconfirmed, overhead.units.load());
}

// Whether the driver may count `total` units for this process: no less than what it gave to calls
// and has not lost, more than 0 if there is a context, and no more than the device has. An
// impossible count is unknown.
bool is_plausible(Process& process, int device_index, uint64_t total, const AskedFor& asked) {
  const uint64_t physical = process.ledger.map()->devices[device_index].physical_bytes;
  return total + asked.may_be_uncounted() >= asked.in_use() &&
         (physical == 0 || total <= units_for(physical)) &&
         (total > 0 || !process.contexts.any_on(device_index) ||
          !backend_of(process.ledger.map()->devices[device_index].key).counts_contexts);
}

// Of the driver's count for this process: the most that exporters have freed and this process still
// has imported. The ledger already charges it.
uint64_t left_by_exporters(const Process& process, int device_index) {
  const char* const key = process.ledger.map()->devices[device_index].key;
  const uint64_t imported = process.imports.imported(device_index);
  if (imported == 0 || !backend_of(key).hands_on_freed_exports) return 0;
  return std::min(imported, process.ledger.orphaned_imports(device_index));
}

}  // namespace

Reading measure_overhead(const OverheadLock& lock, int device_index, uint64_t own, Bounds& bounds) {
  Process& process = lock.process();
  // A reading fails only if another thread's call overlaps it. Beside four threads that allocate
  // every 20 ms, 47 of 103 readings fail with one attempt, 17 with two and none with three. Beside
  // one that does so each millisecond all fail, and each attempt is one more list for nothing.
  constexpr int kAttempts = 3;
  const char* const key = process.ledger.map()->devices[device_index].key;
  const VendorBackend& backend = backend_of(key);
  process.overhead[device_index].stale_s.store(coarse_now_s() + kReadingLasts_s,
                                               std::memory_order_relaxed);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    uint64_t bytes = 0;
    AskedFor before, after;
    settle_pools(lock, device_index);
    pay_for_chunks(process, device_index, 0);
    give_back_closed_exports(lock);
    take_over_unasked(lock, device_index);
    const bool rest = at_rest(process, device_index, own, before);
    if (!backend.usage_of_self(key, bytes)) return Reading::unknown;
    if (bytes > 0) process.ledger.count_parked(device_index);
    settle_pools(lock, device_index);
    const uint64_t given = process.rm_memory.units(device_index);
    if (!rest || !at_rest(process, device_index, own, after) || before.changes != after.changes)
      continue;
    if (!is_plausible(process, device_index, units_for(bytes), after)) return Reading::unknown;
    const uint64_t total = units_for(bytes);
    const uint64_t handed_on = left_by_exporters(process, device_index);
    const bool may_count_freed = process.imports.imported_of_self(device_index) > 0;
    const uint64_t least = total - std::min(total, handed_on) +
                           (backend.counts_managed ? 0 : after.managed) +
                           (may_count_freed ? 0 : after.freed);
    const uint64_t most = total + after.may_be_uncounted();
    const uint64_t thought =
        after.units + process.overhead[device_index].units.load(std::memory_order_relaxed);
    if (most < thought && !forget_empty_blocks(lock, device_index, thought - most, after)) continue;
    bounds.least = least - std::min(least, after.units);
    bounds.most = most - std::min(most, after.units);
    bounds.has_handed_on = handed_on > 0;
    Overhead& overhead = process.overhead[device_index];
    if (overhead.is_watched.load(std::memory_order_relaxed)) {
      const uint64_t asked = after.units - after.may_be_uncounted() - after.without_object;
      const uint64_t requested = given - std::min(given, asked);
      const uint64_t unseen = bounds.most - std::min(bounds.most, requested);
      // An exporter's memory may have been handed on before the ledger shows that. It must not be
      // taken for overhead for good.
      const bool is_certain = process.imports.imported(device_index) == 0 || own > 0;
      if (unseen < overhead.unseen || (bounds.exact() && is_certain)) overhead.unseen = unseen;
      if (!bounds.exact() && !may_count_freed && !process.imports.any_foreign())
        bounds.by_requests = requested + overhead.unseen;
    }
    return Reading::believed;
  }
  return Reading::in_flight;
}

uint64_t least_overhead(Process& process, int device_index, uint64_t own) {
  const char* const key = process.ledger.map()->devices[device_index].key;
  // What is mapped then includes imports that nothing here counts.
  if (process.overhead[device_index].has_uncounted.load(std::memory_order_relaxed)) return 0;
  AskedFor asked;
  uint64_t bytes = 0;
  if (!at_rest(process, device_index, own, asked) || !backend_of(key).mapped_by_self(key, bytes)) {
    return 0;
  }
  const uint64_t not_overhead = asked.units + process.imports.imported(device_index);
  return units_for(bytes) - std::min(units_for(bytes), not_overhead);
}

uint64_t most_overhead(Process& process, int device_index, uint64_t own) {
  const char* const key = process.ledger.map()->devices[device_index].key;
  AskedFor before, after;
  uint64_t bytes = 0;
  const bool stood_still =
      at_rest(process, device_index, own, before) && backend_of(key).usage_of_all(key, bytes) &&
      at_rest(process, device_index, own, after) && before.changes == after.changes;
  if (!stood_still) return kNotTold;
  const uint64_t asked = after.in_use() - std::min(after.in_use(), after.managed);
  return units_for(bytes) < asked ? kNotTold : units_for(bytes) - asked;
}

bool charge_by_usage(Process& process, int device_index, uint64_t units) {
  const NoCancellation scope;  // the caller may be within the driver, which holds locks
  const char* const key = process.ledger.map()->devices[device_index].key;
  const Overhead& overhead = process.overhead[device_index];
  const int64_t unasked = overhead.unasked.load();
  AskedFor before, after;
  uint64_t bytes = 0;
  // `own`: units charged by this call.
  const auto fits = [&](uint64_t own) {
    return at_rest(process, device_index, own, after, unasked) && before.changes == after.changes &&
           process.ledger.held(device_index) - own <= process.ledger.cap(device_index) &&
           units_for(bytes) + after.may_be_uncounted() + overhead.uncounted + overhead.exported +
                   units + own <=
               process.ledger.held_by_self(device_index);
  };
  if (!at_rest(process, device_index, 0, before, unasked) ||
      !backend_of(key).usage_of_self(key, bytes) || bytes == 0 || !fits(0)) {
    return false;
  }
  process.ledger.charge_taken(device_index, units);
  // Another thread may have relied on the same memory, or may have given it back.
  if (fits(units)) return true;
  process.ledger.release(device_index, units);
  return false;
}

void note_reading(const OverheadLock& lock, int device_index, bool exact) {
  // Guessed charges are no longer part of the charge, and must not be subtracted from it when later
  // readings fail.
  lock.process().guessed_charges.forget_device(device_index);
  Overhead& overhead = lock.process().overhead[device_index];
  overhead.unconfirmed = overhead.unread_arrays = 0;
  overhead.arrays_gone = 0;
  if (++overhead.readings == 0) overhead.readings = 1;
  overhead.exact = exact;
}

Reading reconcile_overhead(const OverheadLock& lock, int device_index, uint64_t own) {
  Process& process = lock.process();
  // A program may be refused thousands of times a second, and a list of 4.49 ms keeps the driver's
  // locks: for 5 % of the time at 100 ms, for 21 % at 10 ms. A failed reading shows nothing, so the
  // next one is due sooner. In a program that allocates each millisecond all readings fail: that
  // makes 80 lists a second, and 26 with 100 ms.
  constexpr uint64_t kInterval_ms = 100, kInFlightInterval_ms = 10;
  Overhead& overhead = process.overhead[device_index];
  // While a context is being made, the driver's count may or may not include it.
  Bounds bounds;
  const Reading reading = overhead.pending.load(std::memory_order_relaxed) != 0
                              ? Reading::in_flight
                              : measure_overhead(lock, device_index, own, bounds);
  if (reading == Reading::believed) {
    charge_overhead(lock, device_index, bounds.nearest_to(overhead.units, overhead.unconfirmed));
    note_reading(lock, device_index, bounds.exact());
  } else if (reading == Reading::unknown) {
    const uint64_t least = least_overhead(process, device_index, own);
    if (least > overhead.units) charge_overhead(lock, device_index, least);
  }
  const uint64_t interval = reading == Reading::in_flight ? kInFlightInterval_ms : kInterval_ms;
  overhead.read_again_ms.store(coarse_now_ms() + interval, std::memory_order_relaxed);
  publish_allocation_count(process, device_index);
  return reading;
}

uint64_t use_by_all(const Process& process, int device_index) {
  const char* const key = process.ledger.map()->devices[device_index].key;
  uint64_t first = 0, second = 0;
  const bool stands = backend_of(key).usage_of_all(key, first) &&
                      backend_of(key).usage_of_all(key, second) && first == second;
  return stands ? units_for(first) : kNotTold;
}

}  // namespace fracgpu
