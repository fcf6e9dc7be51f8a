// Memory that no call asks for by size: contexts and what the driver adds to them; see charge.h.
//
// The driver's own count for this process (the truth), less what calls were charged for, is the
// implicit memory. It is read on cold paths, one reading at a time in a process, since a reading
// costs milliseconds. A reading during which another thread allocates or frees means nothing, so
// it counts only when no call was under way before, during and after it. That costs the calls
// nothing: while one is under way, the ledger holds more for this process than its live
// allocations and its implicit memory add up to.
//
// Managed memory is charged in full, and the driver counts what of it is on the device, or none of
// it: with any, a reading says between which two amounts the implicit memory is.
#include <algorithm>

#include "shim/charge.h"
#include "shim/clock.h"
#include "shim/truth.h"
#include "shim/upper_call.h"

namespace fracgpu {
namespace {

using layout::kUnit;
using layout::units_for;

// Both with process.cold_paths held.

// Sets the implicit memory. `reserved` units for it are charged already and become part of it, in
// one step: nobody may see them counted twice and be refused.
void charge_implicit(Process& process, int row, uint64_t units, uint64_t reserved = 0) {
  ImplicitMemory& implicit = process.implicit[row];
  const uint64_t charged = implicit.units.exchange(units, std::memory_order_relaxed) + reserved;
  implicit.passing = std::min(implicit.passing, units);
  process.ledger.set_implicit(row, units);
  if (implicit.exported > units) {
    process.ledger.drop_exported(row, implicit.exported - units);
    implicit.exported = units;
  }
  if (units > charged) process.ledger.charge_taken(row, units - charged);
  if (units < charged) process.ledger.release(row, charged - units);
}

// What is charged already counts as implicit memory from now on.
void add_implicit(Process& process, int row, uint64_t units, bool exported) {
  if (units == 0) return;
  ImplicitMemory& implicit = process.implicit[row];
  process.ledger.set_implicit(row, implicit.units.fetch_add(units) + units);
  implicit.passing += units;
  if (exported) implicit.exported += units;
  implicit.exact = false;
}

// What calls were charged for.
struct AskedFor {
  uint64_t units = 0;
  uint64_t managed = 0;  // part of them
  uint64_t changes = 0;  // differs from an earlier value when any of it came or went
  BlockCache::Kept kept[BlockCache::kPools];  // part of both
};

// True when no call is between its reservation and its entry in the process's tables, or between
// leaving those and giving back. `own` units are reserved by the calling thread.
bool at_rest(Process& process, int row, uint64_t own, AskedFor& asked) {
  const ImplicitMemory& implicit = process.implicit[row];
  if (process.disturbances != 0) return false;
  asked.changes = process.disturbed;
  LiveMap::Still still(process.allocations);
  uint64_t pooled = 0, physical = 0, pool_changes = 0, physical_changes = 0;
  process.pools.sum(row, pooled, pool_changes);
  process.physical.sum(row, physical, physical_changes);
  asked.units = still.units(row) + pooled + physical;
  asked.managed = still.managed(row);
  for (int pool = 0; pool < BlockCache::kPools; ++pool) {
    const BlockCache::Kept kept = asked.kept[pool] = process.blocks[row][pool].kept();
    asked.units += kept.blocks * BlockCache::kBlockUnits;
    asked.changes += kept.changes;
  }
  asked.changes += still.changes() + pool_changes + physical_changes;
  return implicit.left.load(std::memory_order_relaxed) == 0 &&
         process.ledger.held_by_self(row) == asked.units +
                                                 implicit.units.load(std::memory_order_relaxed) +
                                                 own + UpperCall::left(row);
}

// The driver counts `units` less than was thought: the runtime has let go of empty blocks sooner,
// if there were any. They count as implicit memory from now on, which the caller sets. False when
// another thread has used some since.
bool forget_empty_blocks(Process& process, int row, uint64_t units, AskedFor& asked) {
  constexpr uint64_t kBlock = BlockCache::kBlockUnits;
  // Whose they were cannot be told. A block that stayed counted where it is gone would be given
  // back once more when the pool lets go of it by the rule, so each pool is taken to have lost them
  // all.
  for (int pool = 0; pool < BlockCache::kPools; ++pool) {
    const BlockCache::Kept& kept = asked.kept[pool];
    const auto gone = static_cast<uint32_t>(std::min<uint64_t>(units / kBlock, kept.blocks));
    if (gone == 0) continue;
    if (!process.blocks[row][pool].forget(kept, gone)) return false;
    asked.units -= gone * kBlock;
    add_implicit(process, row, gone * kBlock, false);
  }
  return true;
}

enum class Reading { believed, disturbed, unknown };

// What a reading says of the implicit memory, in units.
struct Bounds {
  uint64_t least = 0, most = 0;

  bool exact() const { return least == most; }
  uint64_t nearest_to(uint64_t units) const { return std::clamp(units, least, most); }
};

// `own` units are reserved by the calling thread for a context that it has just made.
Reading read_implicit(Process& process, int row, uint64_t own, Bounds& bounds) {
  constexpr int kAttempts = 3;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    uint64_t bytes = 0;
    AskedFor before, after;
    settle_pools(process, row);
    const uint64_t left = process.implicit[row].left.exchange(0);
    add_implicit(process, row, left, true);
    const bool rest = at_rest(process, row, own, before);
    if (!truth::bytes_of_self(process.ledger.map()->devices[row].key, bytes)) {
      // Nobody can tell what importers hold: believe that it is nothing.
      if (left > 0) charge_implicit(process, row, process.implicit[row].units - left);
      return Reading::unknown;
    }
    settle_pools(process, row);
    if (!rest || !at_rest(process, row, own, after) || before.changes != after.changes) continue;
    const uint64_t total = units_for(bytes), with_managed = total + after.managed;
    const uint64_t thought =
        after.units + process.implicit[row].units.load(std::memory_order_relaxed);
    if (with_managed < thought &&
        !forget_empty_blocks(process, row, thought - with_managed, after)) {
      continue;
    }
    bounds.least = total - std::min(total, after.units);
    bounds.most = with_managed - std::min(with_managed, after.units);
    return Reading::believed;
  }
  return Reading::disturbed;
}

// Sets the implicit memory to what the driver counts for this process beyond what calls asked for.
// Only a believed reading changes anything. `own` units are reserved by the calling thread.
Reading reconcile_implicit(Process& process, int row, uint64_t own = 0) {
  constexpr uint64_t kInterval_ms = 100, kDisturbedInterval_ms = 10;
  ImplicitMemory& implicit = process.implicit[row];
  // While a context is being made the driver's count may or may not hold it already.
  Bounds bounds;
  const Reading reading = implicit.pending.load(std::memory_order_relaxed) != 0
                              ? Reading::disturbed
                              : read_implicit(process, row, own, bounds);
  if (reading == Reading::believed) {
    charge_implicit(process, row, bounds.nearest_to(implicit.units - implicit.passing));
    implicit.passing = 0;
    implicit.exact = bounds.exact();
  }
  const uint64_t interval = reading == Reading::disturbed ? kDisturbedInterval_ms : kInterval_ms;
  implicit.read_again_ms.store(coarse_now_ms() + interval, std::memory_order_relaxed);
  tell_allocations(process, row);
  return reading;
}

// What all processes have on the device, in units, or kNotTold, also where it does not stand still.
constexpr uint64_t kNotTold = UINT64_MAX;
uint64_t use_by_all(const Process& process, int row) {
  const char* const key = process.ledger.map()->devices[row].key;
  uint64_t first = 0, second = 0;
  const bool stands =
      truth::used_bytes(key, first) && truth::used_bytes(key, second) && first == second;
  return stands ? units_for(first) : kNotTold;
}

// The size of a context by what the device's use has grown by since, where the driver does not tell
// what this process holds; 0 where that is no context's size, because somebody else came or went
// meanwhile. (By public reports contexts take from 150 to 600 MiB.)
uint64_t grown_by_context(const Process& process, int row, uint64_t used_before) {
  constexpr uint64_t kLeast = (32u << 20) / kUnit, kMost = (1u << 30) / kUnit;
  const uint64_t used = used_before != kNotTold ? use_by_all(process, row) : kNotTold;
  if (used == kNotTold || used < used_before + kLeast || used > used_before + kMost) return 0;
  return used - used_before;
}

void note_context_size(Process& process, int row, uint64_t units) {
  process.ledger.set_context_size(row, std::max(units, process.ledger.context_size(row)));
}

// The estimate may be larger than what comes. Only a process that holds all the tenant's memory may
// then try with what is left, because nobody else can be pushed over the cap.
uint64_t units_left_if_alone(Process& process, int row) {
  const uint64_t held = process.ledger.held(row), cap = process.ledger.cap(row);
  const bool alone = held == process.ledger.held_by_self(row);
  return alone && cap > held ? cap - held : 0;
}

}  // namespace

ImplicitReservation::ImplicitReservation(Process& process, int row, uint64_t units, const char* api,
                                         Kind kind)
    : process_(process), row_(row), api_(api), kind_(kind), units_(units) {
  Locked<SpinLock> lock(process.cold_paths);
  Refusal refusal;
  granted_ = process.ledger.reserve(row, units_, refusal);
  if (!granted_ && refusal.fault.empty()) {
    const bool trimmed = trim_pools(process, row);
    if (reconcile_implicit(process, row) == Reading::believed || trimmed) {
      granted_ = process.ledger.reserve(row, units_, refusal);
    }
  }
  if (!granted_ && refusal.fault.empty() && kind_ != Kind::given) {
    // Another process may have found out meanwhile how large a context is.
    const uint64_t seen =
        is_context() ? process.ledger.context_size(row) : process.implicit[row].largest_growth;
    units_ = seen != 0 ? seen : units_left_if_alone(process, row);
    granted_ = units_ > 0 && process.ledger.reserve(row, units_, refusal);
  }
  if (granted_) {
    process.implicit[row].pending.fetch_add(units_, std::memory_order_relaxed);
    if (kind_ == Kind::context) used_before_ = use_by_all(process, row);
  } else {
    say_refusal(process, row, api, refusal);
  }
}

ImplicitReservation ImplicitReservation::for_module(Process& process, int row, const char* api,
                                                    uint64_t estimate) {
  uint64_t seen = 0;
  {
    Locked<SpinLock> lock(process.cold_paths);
    seen = process.implicit[row].largest_growth;
  }
  return ImplicitReservation(process, row, seen != 0 ? seen : estimate, api, Kind::module);
}

ImplicitReservation ImplicitReservation::for_context(Process& process, int row, const char* api,
                                                     uint64_t estimate) {
  const uint64_t seen = process.ledger.context_size(row);
  return ImplicitReservation(process, row, seen != 0 ? seen : estimate, api, Kind::context);
}

ImplicitReservation::~ImplicitReservation() {
  if (!granted_ || units_ == 0) return;
  Locked<SpinLock> lock(process_.cold_paths);
  process_.implicit[row_].pending.fetch_sub(units_, std::memory_order_relaxed);
  process_.ledger.release(row_, units_);
}

void ImplicitReservation::refused_by_driver() const {
  say_driver_refusal(process_, row_, api_, units_);
}

bool ImplicitReservation::made() {
  Locked<SpinLock> lock(process_.cold_paths);
  ImplicitMemory& implicit = process_.implicit[row_];
  const bool only_one = implicit.pending.load(std::memory_order_relaxed) == units_;
  Bounds bounds;
  Reading reading = only_one ? read_implicit(process_, row_, units_, bounds) : Reading::disturbed;
  const uint64_t before = implicit.units.load(std::memory_order_relaxed);
  // A driver that counts nothing for a process with a context does not know the process.
  if (reading == Reading::believed && bounds.most == 0 && kind_ != Kind::runtime) {
    reading = Reading::unknown;
  }
  uint64_t units = bounds.nearest_to(before - implicit.passing + units_);
  const bool context = is_context();
  const uint64_t grown =
      reading == Reading::unknown ? grown_by_context(process_, row_, used_before_) : 0;
  const uint64_t estimate = grown != 0 ? grown : units_;
  if (grown != 0) note_context_size(process_, row_, grown);
  if (reading == Reading::disturbed) units = before + units_;
  if (reading == Reading::unknown) units = before + (context ? estimate : 0);
  // Learnt only where nothing else can be in the difference.
  if (reading == Reading::believed && bounds.exact() && implicit.exact && units > before) {
    const uint64_t growth = units - before;
    if (context) {
      note_context_size(process_, row_, growth);
    } else if (kind_ == Kind::module) {
      implicit.largest_growth = std::max(growth, implicit.largest_growth);
    }
  }
  implicit.exact = reading == Reading::believed && bounds.exact();
  // Read again before the next refusal.
  if (reading == Reading::disturbed) implicit.read_again_ms.store(0, std::memory_order_relaxed);
  if (reading == Reading::unknown && context) {
    report(Level::info,
           "the driver does not tell what this process holds on {}: a context is "
           "charged by {}, {}, and modules not at all",
           process_.ledger.map()->devices[row_].key,
           grown != 0 ? "what the GPU's use grew by" : "estimate",
           human_bytes(estimate * kUnit).view());
  }
  charge_implicit(process_, row_, units, units_);
  if (reading == Reading::believed) implicit.passing = 0;
  tell_allocations(process_, row_);
  implicit.pending.fetch_sub(units_, std::memory_order_relaxed);
  units_ = 0;
  if (process_.ledger.within_cap(row_)) return true;
  Refusal refusal;
  refusal.asked = units > before ? units - before : 0;
  refusal.held = process_.ledger.held(row_) - refusal.asked;
  refusal.cap = process_.ledger.cap(row_);
  say_refusal(process_, row_, api_, refusal);
  return false;
}

void leave_to_truth(Process& process, int row, uint64_t units, bool exported) {
  Locked<SpinLock> lock(process.cold_paths);
  add_implicit(process, row, units, exported);
  process.implicit[row].read_again_ms.store(0, std::memory_order_relaxed);
}

bool refresh_implicit(Process& process, int row, uint64_t own) {
  ImplicitMemory& implicit = process.implicit[row];
  if (coarse_now_ms() < implicit.read_again_ms.load(std::memory_order_relaxed)) return false;
  Locked<SpinLock> lock(process.cold_paths);
  const auto charged = [&] {
    return implicit.units.load(std::memory_order_relaxed) +
           implicit.left.load(std::memory_order_relaxed);
  };
  const uint64_t before = charged();
  reconcile_implicit(process, row, own);
  return charged() < before;
}

void settle_left(Process& process, int row) {
  constexpr uint64_t kMuch = 8 * kPoolChunkBytes / kUnit;
  if (process.implicit[row].left.load(std::memory_order_relaxed) >= kMuch) {
    settle_implicit(process, row);
  }
}

bool settle_implicit(Process& process, int row) {
  Locked<SpinLock> lock(process.cold_paths);
  return reconcile_implicit(process, row) != Reading::unknown;
}

void give_back_implicit(Process& process, int row, uint64_t units) {
  Locked<SpinLock> lock(process.cold_paths);
  const uint64_t before = process.implicit[row].units.load(std::memory_order_relaxed);
  charge_implicit(process, row, before - std::min(before, units));
}

void settle_after_destroy(Process& process, int row, uint64_t estimate) {
  if (settle_implicit(process, row)) return;
  const uint64_t one = process.ledger.context_size(row);
  give_back_implicit(process, row, one != 0 ? one : estimate);
}

}  // namespace fracgpu
