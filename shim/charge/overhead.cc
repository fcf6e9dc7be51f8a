// Measures overhead and charges it; see overhead.h.
//
// The overhead is the driver-reported usage of this process, less what calls were charged for. The
// usage is read on cold paths, one reading at a time in a process, since a reading costs
// milliseconds. A reading during which another thread allocates or frees means nothing, so it
// counts only when no call was under way before, during and after it. That costs the calls nothing:
// while one is under way, the ledger holds more for this process than its live allocations and its
// overhead add up to.
//
// Managed memory is charged in full, and NVIDIA's driver counts none of it. Others count as much of
// it as is on the device: there, with any of it, a reading gives two bounds for the overhead
// instead of one number.
#include "shim/charge/overhead.h"

#include <algorithm>

#include "shim/base/clock.h"
#include "shim/charge/linear.h"
#include "shim/charge/pools.h"
#include "shim/charge/refusal.h"
#include "shim/charge/upper_call.h"
#include "shim/vendor/backend.h"

namespace fracgpu {
namespace {

using layout::kUnit;
using layout::units_for;

// Sets the overhead. `reserved` units for it are charged already and become part of it, in
// one step: nobody may see them counted twice and be refused.
void charge_overhead(const OverheadLock& lock, int device_index, uint64_t units,
                     uint64_t reserved = 0) {
  Process& process = lock.process();
  Overhead& overhead = process.overhead[device_index];
  const uint64_t charged = overhead.units.exchange(units, std::memory_order_relaxed) + reserved;
  overhead.unconfirmed = std::min(overhead.unconfirmed, units);
  process.ledger.set_overhead(device_index, units);
  if (overhead.exported > units) {
    process.ledger.drop_exported(device_index, overhead.exported - units);
    overhead.exported = units;
  }
  if (units > charged) process.ledger.charge_taken(device_index, units - charged);
  if (units < charged) process.ledger.release(device_index, charged - units);
}

// What is charged already counts as overhead from now on.
void add_overhead(const OverheadLock& lock, int device_index, uint64_t units, bool exported) {
  if (units == 0) return;
  Process& process = lock.process();
  Overhead& overhead = process.overhead[device_index];
  process.ledger.set_overhead(device_index, overhead.units.fetch_add(units) + units);
  overhead.unconfirmed += units;
  if (exported) overhead.exported += units;
  overhead.exact = false;
}

// What calls were charged for.
struct AskedFor {
  uint64_t units = 0;
  uint64_t managed = 0;  // of `units`
  uint64_t changes = 0;  // differs from an earlier value when any of it came or went
  BlockCache::EmptyBlocks kept[BlockCache::kPools];  // in `units` and in `changes` too

  // Without the empty blocks, which the runtime may have let go of.
  uint64_t in_use() const {
    uint64_t sum = units;
    for (const BlockCache::EmptyBlocks& empty : kept) sum -= empty.blocks * BlockCache::kBlockUnits;
    return sum;
  }
};

// True when no call is between its reservation and its entry in the process's tables, or between
// leaving those and giving back. `own` units are reserved by the calling thread.
bool at_rest(Process& process, int device_index, uint64_t own, AskedFor& asked) {
  const Overhead& overhead = process.overhead[device_index];
  if (process.in_flight != 0) return false;
  asked.changes = process.in_flight_ended;
  LiveMap::LockedView view(process.allocations);
  uint64_t pooled = 0, physical = 0, pool_changes = 0, physical_changes = 0;
  process.pools.sum(device_index, pooled, pool_changes);
  process.physical.sum(device_index, physical, physical_changes);
  asked.units = view.units(device_index) + pooled + physical;
  asked.managed = view.managed(device_index);
  for (int pool = 0; pool < BlockCache::kPools; ++pool) {
    const BlockCache::EmptyBlocks kept = asked.kept[pool] =
        process.blocks[device_index][pool].empty_blocks();
    asked.units += kept.blocks * BlockCache::kBlockUnits;
    asked.changes += kept.changes;
  }
  asked.changes += view.changes() + pool_changes + physical_changes;
  return overhead.deferred.load(std::memory_order_relaxed) == 0 &&
         process.ledger.held_by_self(device_index) ==
             asked.units + overhead.units.load(std::memory_order_relaxed) + own +
                 UpperCall::remaining(device_index);
}

// The driver counts `units` less than was thought: the runtime has let go of empty blocks sooner,
// if there were any. They count as overhead from now on, which the caller sets. False when
// another thread has used some since.
bool forget_empty_blocks(const OverheadLock& lock, int device_index, uint64_t units,
                         AskedFor& asked) {
  constexpr uint64_t kBlock = BlockCache::kBlockUnits;
  // Nothing tells whose they were. A block that stayed counted where it is gone would be given
  // back once more when the pool lets go of it by the rule, so each pool is taken to have lost them
  // all.
  for (int pool = 0; pool < BlockCache::kPools; ++pool) {
    const BlockCache::EmptyBlocks& kept = asked.kept[pool];
    const auto gone = static_cast<uint32_t>(std::min<uint64_t>(units / kBlock, kept.blocks));
    if (gone == 0) continue;
    if (!lock.process().blocks[device_index][pool].forget(kept, gone)) return false;
    asked.units -= gone * kBlock;
    add_overhead(lock, device_index, gone * kBlock, false);
  }
  return true;
}

enum class Reading { believed, in_flight, unknown };

// Between which two amounts the overhead is by a reading, in units.
struct Bounds {
  uint64_t least = 0, most = 0;

  bool exact() const { return least == most; }
  uint64_t nearest_to(uint64_t units) const { return std::clamp(units, least, most); }
};

// Where the driver does not tell what this process holds: what it freed of its exports is gone but
// for what others may have imported.
void drop_unimported(const OverheadLock& lock, int device_index) {
  Process& process = lock.process();
  Overhead& overhead = process.overhead[device_index];
  const uint64_t kept = std::min(overhead.exported, process.ledger.imported_by_all(device_index));
  const uint64_t gone = overhead.exported - kept;
  if (gone == 0) return;
  overhead.exported = kept;
  process.ledger.drop_exported(device_index, gone);
  charge_overhead(lock, device_index, overhead.units.load(std::memory_order_relaxed) - gone);
}

// Whether the driver may count `total` units for this process: no less than what it gave to calls,
// something where there is a context, and no more than there is. What cannot be is not known.
bool is_plausible(Process& process, int device_index, uint64_t total, const AskedFor& asked) {
  const uint64_t physical = process.ledger.map()->devices[device_index].physical_bytes;
  return total + asked.managed >= asked.in_use() &&
         (physical == 0 || total <= units_for(physical)) &&
         (total > 0 || !process.contexts.any_on(device_index));
}

// `own` units are reserved by the calling thread for a context that it has just made.
Reading measure_overhead(const OverheadLock& lock, int device_index, uint64_t own, Bounds& bounds) {
  Process& process = lock.process();
  // A reading fails only if another thread's call falls into it. A program that allocates all the
  // time would fail many in a row, and the next one is due soon. Chosen, not measured.
  constexpr int kAttempts = 3;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    uint64_t bytes = 0;
    AskedFor before, after;
    settle_pools(lock, device_index);
    const uint64_t deferred = process.overhead[device_index].deferred.exchange(0);
    add_overhead(lock, device_index, deferred, true);
    const bool rest = at_rest(process, device_index, own, before);
    if (!backend_of(process.ledger.map()->devices[device_index].key)
             .usage_of_self(process.ledger.map()->devices[device_index].key, bytes)) {
      drop_unimported(lock, device_index);
      return Reading::unknown;
    }
    settle_pools(lock, device_index);
    if (!rest || !at_rest(process, device_index, own, after) || before.changes != after.changes)
      continue;
    const uint64_t total = units_for(bytes), with_managed = total + after.managed;
    if (!is_plausible(process, device_index, total, after)) return Reading::unknown;
    const uint64_t thought =
        after.units + process.overhead[device_index].units.load(std::memory_order_relaxed);
    if (with_managed < thought &&
        !forget_empty_blocks(lock, device_index, thought - with_managed, after)) {
      continue;
    }
    bounds.least = total - std::min(total, after.units);
    bounds.most = with_managed - std::min(with_managed, after.units);
    if (!backend_of(process.ledger.map()->devices[device_index].key).counts_managed) {
      bounds.least = bounds.most;
    }
    return Reading::believed;
  }
  return Reading::in_flight;
}

// The least overhead that this process must have, by what it has mapped; 0 where that tells
// nothing. `own` units are reserved by the calling thread.
uint64_t least_overhead(Process& process, int device_index, uint64_t own) {
  const char* const key = process.ledger.map()->devices[device_index].key;
  AskedFor asked;
  uint64_t bytes = 0;
  if (!at_rest(process, device_index, own, asked) || !backend_of(key).mapped_by_self(key, bytes)) {
    return 0;
  }
  const uint64_t not_overhead = asked.units + process.imports.imported(device_index);
  return units_for(bytes) - std::min(units_for(bytes), not_overhead);
}

// A reading has told how large the overhead is, and it is charged so.
void note_reading(Overhead& overhead, bool exact) {
  overhead.unconfirmed = overhead.unread_arrays = 0;
  overhead.arrays_gone = 0;
  if (++overhead.readings == 0) overhead.readings = 1;
  overhead.exact = exact;
}

// Sets the overhead to what the driver counts for this process beyond what calls asked for.
// Only a believed reading changes anything. `own` units are reserved by the calling thread.
Reading reconcile_overhead(const OverheadLock& lock, int device_index, uint64_t own = 0) {
  Process& process = lock.process();
  // A program may be refused thousands of times a second, and a reading costs milliseconds. A tenth
  // of a second is soon enough to see what a driver gave back. A reading that failed told nothing,
  // so the next one is due sooner. Chosen, not measured.
  constexpr uint64_t kInterval_ms = 100, kInFlightInterval_ms = 10;
  Overhead& overhead = process.overhead[device_index];
  // While a context is being made the driver's count may or may not hold it already.
  Bounds bounds;
  const Reading reading = overhead.pending.load(std::memory_order_relaxed) != 0
                              ? Reading::in_flight
                              : measure_overhead(lock, device_index, own, bounds);
  if (reading == Reading::believed) {
    charge_overhead(lock, device_index, bounds.nearest_to(overhead.units - overhead.unconfirmed));
    note_reading(overhead, bounds.exact());
  } else if (reading == Reading::unknown) {
    const uint64_t least = least_overhead(process, device_index, own);
    if (least > overhead.units) charge_overhead(lock, device_index, least);
  }
  const uint64_t interval = reading == Reading::in_flight ? kInFlightInterval_ms : kInterval_ms;
  overhead.read_again_ms.store(coarse_now_ms() + interval, std::memory_order_relaxed);
  publish_allocation_count(process, device_index);
  return reading;
}

// What all processes have on the device, in units, or kNotTold, also where it does not stand still.
constexpr uint64_t kNotTold = UINT64_MAX;
uint64_t use_by_all(const Process& process, int device_index) {
  const char* const key = process.ledger.map()->devices[device_index].key;
  uint64_t first = 0, second = 0;
  const bool stands = backend_of(key).usage_of_all(key, first) &&
                      backend_of(key).usage_of_all(key, second) && first == second;
  return stands ? units_for(first) : kNotTold;
}

// The size of a context by what the device's use has grown by since, where the driver does not tell
// what this process holds; 0 where that is no context's size, because somebody else came or went
// meanwhile. By public reports contexts take from 150 to 600 MiB; the bounds leave room on both
// sides of that and are not measured.
uint64_t grown_by_context(const Process& process, int device_index, uint64_t used_before) {
  constexpr uint64_t kLeast = (32u << 20) / kUnit, kMost = (1u << 30) / kUnit;
  const uint64_t used = used_before != kNotTold ? use_by_all(process, device_index) : kNotTold;
  if (used == kNotTold || used < used_before + kLeast || used > used_before + kMost) return 0;
  return used - used_before;
}

void note_context_size(Process& process, int device_index, uint64_t units) {
  process.ledger.set_context_size(device_index,
                                  std::max(units, process.ledger.context_size(device_index)));
}

// Small arrays that are charged a chunk each, until a reading tells how many they share: 32 MiB.
// Chosen, not measured.
constexpr uint64_t kChunk = kPageBytes / kUnit, kMostUnread = 16 * kChunk;

// The estimate may be larger than what comes. Only a process that holds all the tenant's memory may
// then try with what remains, because nobody else can be pushed over the cap.
uint64_t room_if_alone(Process& process, int device_index) {
  const uint64_t held = process.ledger.held(device_index), cap = process.ledger.cap(device_index);
  const bool alone = held == process.ledger.held_by_self(device_index);
  return alone && cap > held ? cap - held : 0;
}

}  // namespace

OverheadReservation::OverheadReservation(Process& process, int device_index, uint64_t units,
                                         const char* api, Kind kind, const ModuleImage& image)
    : process_(process),
      device_index_(device_index),
      api_(api),
      kind_(kind),
      image_(image),
      units_(units),
      foreseen_(kind == Kind::given || kind == Kind::array) {
  const OverheadLock lock(process);
  Refusal refusal;
  if (kind == Kind::module) foresee_module(lock);
  // No array that shares a chunk takes more than one: until many were made, that is charged.
  if (kind == Kind::array) unread_ = process.overhead[device_index].unread_arrays < kMostUnread;
  granted_ = process.ledger.reserve(device_index, units_, refusal);
  if (!granted_ && refusal.fault.empty()) {
    const bool trimmed = trim_pools(lock, device_index);
    if (reconcile_overhead(lock, device_index) == Reading::believed || trimmed) {
      granted_ = process.ledger.reserve(device_index, units_, refusal);
    }
  }
  if (!granted_ && refusal.fault.empty() && !foreseen_) {
    // Another process may have found out meanwhile how large a context is. The next module may be
    // smaller than any before.
    const uint64_t seen = is_context() ? process.ledger.context_size(device_index) : 0;
    units_ = seen != 0 ? seen : room_if_alone(process, device_index);
    granted_ = units_ > 0 && process.ledger.reserve(device_index, units_, refusal);
  }
  if (granted_) {
    process.overhead[device_index].pending.fetch_add(units_, std::memory_order_relaxed);
    const bool guessed = kind_ == Kind::module && process.overhead[device_index].untold;
    if (kind_ == Kind::context || guessed) used_before_ = use_by_all(process, device_index);
    held_before_ = process.ledger.held(device_index);
  } else {
    report_refusal(process, device_index, api, refusal);
  }
}

// Decides whether what the module takes is known, and else how much is reserved for it.
void OverheadReservation::foresee_module(const OverheadLock& lock) {
  Overhead& overhead = process_.overhead[device_index_];
  const KnownModule* const known = process_.modules.of_image(image_.key, image_.context);
  const bool settled = known != nullptr && known->settled && known->handle == nullptr;
  unread_ = settled && overhead.unread.take();
  if (!unread_ && overhead.size_in_doubt) {
    read_before_ = reconcile_overhead(lock, device_index_) == Reading::believed;
    overhead.size_in_doubt = false;  // also where nothing can be learnt now
  }
  foreseen_ = unread_ || (known != nullptr && known->seen > 0);
  if (foreseen_) {
    units_ = unread_ ? known->units : known->seen;
  } else if (overhead.largest_growth != 0) {
    units_ = overhead.largest_growth;
  }
}

OverheadReservation OverheadReservation::for_module(Process& process, int device_index,
                                                    const char* api, uint64_t estimate,
                                                    const ModuleImage& image) {
  return OverheadReservation(process, device_index, estimate, api, Kind::module, image);
}

OverheadReservation OverheadReservation::for_context(Process& process, int device_index,
                                                     const char* api, uint64_t estimate) {
  const uint64_t seen = process.ledger.context_size(device_index);
  return OverheadReservation(process, device_index, seen != 0 ? seen : estimate, api,
                             Kind::context);
}

OverheadReservation::~OverheadReservation() {
  if (!granted_ || units_ == 0) return;
  const OverheadLock lock(process_);
  process_.overhead[device_index_].pending.fetch_sub(units_, std::memory_order_relaxed);
  process_.ledger.release(device_index_, units_);
}

void OverheadReservation::refused_by_driver() const {
  report_driver_refusal(process_, device_index_, api_, units_);
}

// What the call has made of the overhead.
struct OverheadReservation::Outcome {
  Reading reading = Reading::in_flight;
  uint64_t before = 0, after = 0;  // units
  bool exact = false;              // `after` is what the driver counts, to the unit

  uint64_t grown() const { return after > before ? after - before : 0; }
};

bool OverheadReservation::made(const void* handle) {
  const OverheadLock lock(process_);
  if (unread_) {
    charge_unread(lock, handle);
    return true;
  }
  const Outcome outcome = read_outcome(lock);
  if (outcome.reading != Reading::in_flight)
    process_.overhead[device_index_].untold = outcome.reading == Reading::unknown;
  const bool guessed = kind_ == Kind::module && outcome.reading == Reading::unknown;
  if (kind_ == Kind::module) learn_module(lock, outcome, handle);
  learn_from(lock, outcome);
  charge(lock, outcome);
  if (process_.ledger.within_cap(device_index_)) {
    if (guessed && outcome.grown() > 0 && handle != nullptr) {
      process_.guessed_modules.enter({.handle = handle,
                                      .units = outcome.grown(),
                                      .device_index = device_index_,
                                      .context = image_.context});
    }
    return true;
  }
  report_excess(outcome);
  // Nothing will tell that it is gone.
  if (guessed) charge_overhead(lock, device_index_, outcome.before);
  // The caller unloads it by the driver's own function.
  if (KnownModule* const known = process_.modules.of_handle(handle); known != nullptr)
    known->handle = nullptr;
  return false;
}

// The reservation becomes overhead as it is.
void OverheadReservation::charge_unread(const OverheadLock& lock, const void* handle) {
  Overhead& overhead = process_.overhead[device_index_];
  if (kind_ == Kind::array) {
    add_overhead(lock, device_index_, units_, false);
    overhead.unread_arrays += units_;
    unread_since_ = overhead.readings;
  } else {
    process_.ledger.set_overhead(device_index_, overhead.units.fetch_add(units_) + units_);
    KnownModule* const known = process_.modules.of_image(image_.key, image_.context);
    if (known != nullptr) {
      known->device_index = device_index_;
      process_.modules.enter(known, handle);
    }
  }
  overhead.pending.fetch_sub(units_, std::memory_order_relaxed);
  units_ = 0;
}

OverheadReservation::Outcome OverheadReservation::read_outcome(const OverheadLock& lock) {
  const Overhead& overhead = process_.overhead[device_index_];
  Outcome outcome;
  Bounds bounds;
  // While another such call is under way, the difference may be that one's.
  const bool only_one = overhead.pending.load(std::memory_order_relaxed) == units_;
  if (only_one) outcome.reading = measure_overhead(lock, device_index_, units_, bounds);
  // Only now: measuring may have added to it.
  outcome.before = overhead.units.load(std::memory_order_relaxed);
  // A driver that counts nothing for a process with a context does not know the process.
  if (outcome.reading == Reading::believed && bounds.most == 0 && kind_ != Kind::runtime) {
    outcome.reading = Reading::unknown;
  }
  switch (outcome.reading) {
    case Reading::believed:
      outcome.after = bounds.nearest_to(outcome.before - overhead.unconfirmed + units_);
      outcome.exact = bounds.exact();
      break;
    case Reading::in_flight:
      outcome.after = outcome.before + units_;
      break;
    case Reading::unknown:
      outcome.after = outcome.before + (is_context()            ? estimate_context()
                                        : kind_ == Kind::module ? guess_module()
                                                                : 0);
      outcome.after = std::max(outcome.after, least_overhead(process_, device_index_, units_));
  }
  return outcome;
}

// In units, where the driver does not report what this process holds: what everybody's use of the
// device has grown by, or else what was reserved.
uint64_t OverheadReservation::estimate_context() {
  const uint64_t grown = grown_by_context(process_, device_index_, used_before_);
  if (grown != 0) note_context_size(process_, device_index_, grown);
  const uint64_t estimate = grown != 0 ? grown : units_;
  report(Level::info,
         "the driver does not tell what this process holds on {}: a context is "
         "charged by {}, {}, and modules by what its use grows by, if that is told",
         process_.ledger.map()->devices[device_index_].key,
         grown != 0 ? "what the GPU's use grew by" : "estimate",
         human_bytes(estimate * kUnit).view());
  return estimate;
}

// In units, where the driver does not report what this process holds: what everybody's use of the
// device has grown by, less what the tenant was given meanwhile. Another tenant that allocates in
// that moment makes it too large; more than modules take is certainly that.
uint64_t OverheadReservation::guess_module() const {
  constexpr uint64_t kMost = (1u << 30) / kUnit;
  const uint64_t used = used_before_ != kNotTold ? use_by_all(process_, device_index_) : kNotTold;
  if (used == kNotTold || used <= used_before_) return 0;
  const uint64_t held = process_.ledger.held(device_index_);
  const uint64_t given = held - std::min(held, held_before_);
  const uint64_t grown = used - used_before_ - std::min(used - used_before_, given);
  return grown <= kMost ? grown : 0;
}

// Remembers how large a context or a module was, where nothing else can be in the difference.
void OverheadReservation::learn_from(const OverheadLock&, const Outcome& outcome) {
  // What one huge module took is no reason to refuse all later ones. Chosen, not measured.
  constexpr uint64_t kMostForeseen = (128u << 20) / kUnit;
  Overhead& overhead = process_.overhead[device_index_];
  if (!outcome.exact || !overhead.exact) return;
  if (is_context()) {
    if (outcome.grown() > 0) note_context_size(process_, device_index_, outcome.grown());
  } else if (kind_ == Kind::module) {
    // Since the last reading, code may have been loaded lazily, and a launch may have made the
    // local memory grow. Read before the next one, then.
    const uint64_t seen = std::min(outcome.grown(), kMostForeseen);
    if (read_before_) overhead.largest_growth = std::max(seen, overhead.largest_growth);
    overhead.size_in_doubt = seen > overhead.largest_growth;
  }
}

// Remembers what loading this image took, for its unloading and its next loading.
void OverheadReservation::learn_module(const OverheadLock&, const Outcome& outcome,
                                       const void* handle) {
  KnownModule* const known = process_.modules.of_image(image_.key, image_.context);
  if (known == nullptr || known->handle != nullptr) return;
  Overhead& overhead = process_.overhead[device_index_];
  known->measured = outcome.exact && overhead.exact && outcome.after >= outcome.before;
  known->grown = outcome.grown();
  if (known->measured && (read_before_ || known->grown <= overhead.largest_growth))
    known->seen = known->grown;
  if (known->settled && known->measured) {
    overhead.unread.judge(known->grown <= known->units);
    known->settled = known->grown == known->units;
  }
  known->device_index = device_index_;
  process_.modules.enter(known, handle);
}

// The reservation becomes overhead.
void OverheadReservation::charge(const OverheadLock& lock, const Outcome& outcome) {
  Overhead& overhead = process_.overhead[device_index_];
  overhead.exact = outcome.exact;
  // What was not measured is read before the next refusal.
  if (outcome.reading == Reading::in_flight) {
    overhead.read_again_ms.store(0, std::memory_order_relaxed);
  }
  charge_overhead(lock, device_index_, outcome.after, units_);
  if (outcome.reading == Reading::believed) note_reading(overhead, outcome.exact);
  publish_allocation_count(process_, device_index_);
  overhead.pending.fetch_sub(units_, std::memory_order_relaxed);
  units_ = 0;
}

// The call took more than the cap has room for.
void OverheadReservation::report_excess(const Outcome& outcome) {
  Refusal refusal;
  refusal.asked = outcome.grown();
  refusal.held = process_.ledger.held(device_index_) - refusal.asked;
  refusal.cap = process_.ledger.cap(device_index_);
  report_refusal(process_, device_index_, api_, refusal);
}

void defer_to_reported_usage(Process& process, int device_index, uint64_t units, bool exported) {
  defer_to_reported_usage(OverheadLock(process), device_index, units, exported);
}

void defer_to_reported_usage(const OverheadLock& lock, int device_index, uint64_t units,
                             bool exported) {
  add_overhead(lock, device_index, units, exported);
  lock.process().overhead[device_index].read_again_ms.store(0, std::memory_order_relaxed);
}

bool refresh_overhead(Process& process, int device_index, uint64_t own) {
  Overhead& overhead = process.overhead[device_index];
  if (coarse_now_ms() < overhead.read_again_ms.load(std::memory_order_relaxed)) return false;
  const OverheadLock lock(process);
  const auto charged = [&] {
    return overhead.units.load(std::memory_order_relaxed) +
           overhead.deferred.load(std::memory_order_relaxed);
  };
  const uint64_t before = charged();
  reconcile_overhead(lock, device_index, own);
  return charged() < before;
}

void settle_deferred(Process& process, int device_index) {
  // A reading costs milliseconds, and until there is one the tenant lacks the memory. Eight of the
  // steps in which pools grow (256 MiB) is chosen, not measured.
  constexpr uint64_t kMuch = 8 * kPoolChunkBytes / kUnit;
  if (process.overhead[device_index].deferred.load(std::memory_order_relaxed) >= kMuch) {
    settle_overhead(process, device_index);
  }
}

bool settle_overhead(Process& process, int device_index) {
  const OverheadLock lock(process);
  return reconcile_overhead(lock, device_index) != Reading::unknown;
}

void release_overhead(Process& process, int device_index, uint64_t units) {
  const OverheadLock lock(process);
  const uint64_t before = process.overhead[device_index].units.load(std::memory_order_relaxed);
  charge_overhead(lock, device_index, before - std::min(before, units));
}

namespace {

// Nothing where a reading has told meanwhile what the process holds: then it has seen this too.
void release_guessed(const OverheadLock& lock, const GuessedModules::Entry& module) {
  if (module.handle == nullptr) return;
  const Overhead& overhead = lock.process().overhead[module.device_index];
  const uint64_t before = overhead.units.load(std::memory_order_relaxed);
  if (overhead.untold)
    charge_overhead(lock, module.device_index, before - std::min(before, module.units));
}

}  // namespace

ModuleRelease::ModuleRelease(Process& process, const void* handle)
    : process_(process), handle_(handle) {
  const OverheadLock lock(process);
  known_ = process.modules.of_handle(handle);
  if (known_ == nullptr) return;
  before_ = *known_;
  readings_ = process.overhead[known_->device_index].readings;
  known_->handle = &ModuleTable::kLeaving;
}

ModuleRelease::~ModuleRelease() {
  if (known_ == nullptr) return;
  const OverheadLock lock(process_);
  if (KnownModule* const known = living(lock); known != nullptr)
    process_.modules.enter(known, handle_);
}

// Null if its context has ended meanwhile.
KnownModule* ModuleRelease::living(const OverheadLock&) {
  const bool same = known_ != nullptr && known_->image == before_.image &&
                    known_->context == before_.context && known_->handle == &ModuleTable::kLeaving;
  return same ? known_ : nullptr;
}

void ModuleRelease::done(int device_index) {
  const OverheadLock lock(process_);
  release_guessed(lock, process_.guessed_modules.take(handle_));
  KnownModule* const known = living(lock);
  known_ = nullptr;
  if (known != nullptr) {
    known->handle = nullptr;
    device_index = known->device_index;
  }
  if (device_index < 0) return;
  Overhead& overhead = process_.overhead[device_index];
  const uint64_t before = overhead.units.load(std::memory_order_relaxed);
  // A reading since then may have seen already that it is gone.
  const bool unseen = known != nullptr && overhead.readings == readings_;
  if (unseen && known->settled && before >= known->units && overhead.unread.take()) {
    charge_overhead(lock, device_index, before - known->units);
    return;
  }
  const bool was_exact = overhead.exact;
  const Reading reading = reconcile_overhead(lock, device_index);
  if (known == nullptr) return;
  const uint64_t after = overhead.units.load(std::memory_order_relaxed);
  const bool measured = unseen && reading == Reading::believed && was_exact && overhead.exact;
  if (known->settled) {
    if (!measured) return;
    overhead.unread.judge(after + known->units <= before);
    known->settled = after + known->units == before;
  } else if (measured && known->measured && after + known->grown == before) {
    known->settled = true;
    known->units = known->grown;
    overhead.unread.judge(true);
  }
}

void release_small_array(Process& process, int device_index, uint32_t unread_since) {
  const OverheadLock lock(process);
  Overhead& overhead = process.overhead[device_index];
  const uint64_t before = overhead.units.load(std::memory_order_relaxed);
  const uint64_t own = unread_since == overhead.readings ? kChunk : 0;
  const auto give_back = [&] {
    overhead.unread_arrays -= own;
    overhead.unconfirmed -= std::min(overhead.unconfirmed, own);
    charge_overhead(lock, device_index, before - std::min(before, own));
  };
  if (own > 0 && overhead.unread.take()) return give_back();
  // What those took that a reading has seen, only another one tells.
  constexpr uint32_t kMostGone = kMostUnread / kChunk;
  if (own == 0 && ++overhead.arrays_gone < kMostGone &&
      process.small_arrays.load(std::memory_order_relaxed) > 0) {
    overhead.read_again_ms.store(0, std::memory_order_relaxed);
    return;
  }
  const Reading reading = reconcile_overhead(lock, device_index);
  if (reading == Reading::believed) {
    overhead.unread.judge(overhead.units.load(std::memory_order_relaxed) + own <= before);
  } else if (reading == Reading::unknown && own > 0) {
    give_back();  // nobody will tell
  }
}

void forget_code(Process& process, uint16_t context) {
  process.libraries.forget_context(context);
  const OverheadLock lock(process);
  process.modules.forget_context(context);
  for (GuessedModules::Entry module; (module = process.guessed_modules.take_of(context)).handle;)
    release_guessed(lock, module);
}

void settle_after_destroy(Process& process, int device_index, uint64_t estimate) {
  if (settle_overhead(process, device_index)) return;
  const uint64_t one = process.ledger.context_size(device_index);
  release_overhead(process, device_index, one != 0 ? one : estimate);
}

}  // namespace fracgpu
