// Memory that no call asks for by size: contexts and what the driver adds to them; see charge.h.
//
// The driver's own count for this process (the truth), less what calls were charged for, is the
// implicit memory. It is read on cold paths, one reading at a time in a process, since a reading
// costs milliseconds. A reading that meets another thread's allocation between the driver's call
// and its charge can only come out too low; it is therefore never believed beyond one context.
#include <algorithm>

#include "shim/charge.h"
#include "shim/truth.h"

namespace fracgpu {
namespace {

using layout::kUnit;
using layout::units_for;

// Charged for the first context on a device whose truth cannot be read, and reserved for it where
// it can: contexts of public reports range from 150 to 600 MiB. An estimate, not a measurement.
constexpr uint64_t kEstimatedContext = (512u << 20) / kUnit;

// Both with process.cold_paths held.

// Sets the implicit memory. `reserved` units for it are charged already and become part of it, in
// one step: nobody may see them counted twice and be refused.
void charge_implicit(Process& process, int row, uint64_t units, uint64_t reserved = 0) {
  ImplicitMemory& implicit = process.implicit[row];
  const uint64_t charged = implicit.units.exchange(units, std::memory_order_relaxed) + reserved;
  process.ledger.set_implicit(row, units);
  if (units > charged) process.ledger.charge_taken(row, units - charged);
  if (units < charged) process.ledger.release(row, charged - units);
}

bool read_implicit(Process& process, int row, uint64_t& units) {
  uint64_t bytes = 0;
  if (!truth::bytes_of_self(process.ledger.map()->devices[row].key, bytes)) return false;
  const ImplicitMemory& implicit = process.implicit[row];
  const uint64_t accounted = implicit.units.load(std::memory_order_relaxed) +
                             implicit.pending.load(std::memory_order_relaxed);
  const uint64_t held = process.ledger.held_by_self(row);
  const uint64_t asked_for = held > accounted ? held - accounted : 0;
  const uint64_t total = units_for(bytes);
  units = total > asked_for ? total - asked_for : 0;
  return true;
}

// Sets the implicit memory to what the driver counts for this process beyond what calls asked for.
// False, with nothing changed, where that cannot be known now.
bool reconcile_implicit(Process& process, int row) {
  Locked<SpinLock> lock(process.cold_paths);
  // While a context is being made the driver's count may or may not hold it already.
  if (process.implicit[row].pending.load(std::memory_order_relaxed) != 0) return false;
  uint64_t units = 0;
  if (!read_implicit(process, row, units)) return false;
  // Too low a reading must not take away more than the one context that is gone.
  const uint64_t before = process.implicit[row].units.load(std::memory_order_relaxed);
  const uint64_t one = process.ledger.context_size(row);
  charge_implicit(process, row, std::max(units, before > one ? before - one : 0));
  return true;
}

}  // namespace

ContextReservation::ContextReservation(Process& process, int row, const char* api)
    : process_(process), row_(row), api_(api) {
  const uint64_t seen = process.ledger.context_size(row);
  units_ = seen != 0 ? seen : kEstimatedContext;
  Locked<SpinLock> lock(process.cold_paths);
  Refusal refusal;
  granted_ = process.ledger.reserve(row, units_, refusal);
  if (!granted_ && seen == 0 && refusal.fault.empty()) {
    // The estimate may be larger than any context here. Another process may have found out the
    // size meanwhile; else only a process that holds all the tenant's memory may try with what is
    // left, because nobody else can then be pushed over the cap.
    const uint64_t held = process.ledger.held(row), cap = process.ledger.cap(row);
    const bool alone = held == process.ledger.held_by_self(row);
    units_ = process.ledger.context_size(row);
    if (units_ == 0 && alone && cap > held) units_ = cap - held;
    granted_ = units_ > 0 && process.ledger.reserve(row, units_, refusal);
  }
  if (granted_) {
    process.implicit[row].pending.fetch_add(units_, std::memory_order_relaxed);
  } else {
    say_refusal(process, row, api, refusal);
  }
}

ContextReservation::~ContextReservation() {
  if (!granted_ || units_ == 0) return;
  Locked<SpinLock> lock(process_.cold_paths);
  process_.implicit[row_].pending.fetch_sub(units_, std::memory_order_relaxed);
  process_.ledger.release(row_, units_);
}

bool ContextReservation::made() {
  Locked<SpinLock> lock(process_.cold_paths);
  ImplicitMemory& implicit = process_.implicit[row_];
  const uint64_t before = implicit.units.load(std::memory_order_relaxed);
  uint64_t units = 0;
  // A driver that counts nothing for a process with a context does not know the process.
  if (!read_implicit(process_, row_, units) || units == 0) {
    units = before + units_;
    report(Level::info,
           "the driver does not tell what this process holds on {}: a context is "
           "charged by estimate, {}",
           process_.ledger.map()->devices[row_].key, human_bytes(units_ * kUnit).view());
  } else if (units > before && implicit.pending.load(std::memory_order_relaxed) == units_) {
    process_.ledger.set_context_size(row_, units - before);
  }
  // Another thread's allocation that is under way makes the reading too low; a context adds at
  // least what the last one did.
  units = std::max(units, before + process_.ledger.context_size(row_));
  charge_implicit(process_, row_, units, units_);
  implicit.pending.fetch_sub(units_, std::memory_order_relaxed);
  units_ = 0;
  if (process_.ledger.held(row_) <= process_.ledger.cap(row_)) return true;
  Refusal refusal;
  refusal.asked = units - before;
  refusal.held = process_.ledger.held(row_) - refusal.asked;
  refusal.cap = process_.ledger.cap(row_);
  say_refusal(process_, row_, api_, refusal);
  return false;
}

void settle_after_destroy(Process& process, int row, bool last_on_device) {
  if (reconcile_implicit(process, row)) return;
  Locked<SpinLock> lock(process.cold_paths);
  const uint64_t before = process.implicit[row].units.load(std::memory_order_relaxed);
  const uint64_t one = process.ledger.context_size(row);
  const uint64_t estimate = one != 0 ? one : kEstimatedContext;
  charge_implicit(process, row, last_on_device || before < estimate ? 0 : before - estimate);
}

}  // namespace fracgpu
