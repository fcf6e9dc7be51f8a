// Gives overhead back, by readings of the driver-reported usage or by the known size of what is
// gone; see overhead.h.
#include <algorithm>

#include "shim/base/clock.h"
#include "shim/charge/overhead_reading.h"
#include "shim/charge/pools.h"

namespace fracgpu {

using layout::kUnit;

bool refresh_overhead(Process& process, int device_index, uint64_t own) {
  Overhead& overhead = process.overhead[device_index];
  if (coarse_now_ms() < overhead.read_again_ms.load(std::memory_order_relaxed)) return false;
  const OverheadLock lock(process);
  // Includes the empty blocks: a reading may show that the runtime has released them.
  const auto charged = [&] {
    uint64_t units = overhead.units.load(std::memory_order_relaxed) +
                     static_cast<uint64_t>(overhead.unasked.load(std::memory_order_relaxed));
    for (BlockCache& pool : process.blocks[device_index])
      units += pool.empty_blocks().blocks * BlockCache::kBlockUnits;
    return units;
  };
  const uint64_t before = charged();
  reconcile_overhead(lock, device_index, own);
  return charged() < before;
}

void renew_reading(Process& process, int device_index) {
  std::atomic<uint64_t>& stale_s = process.overhead[device_index].stale_s;
  uint64_t due = stale_s.load(std::memory_order_relaxed);
  const uint64_t now = coarse_now_s();
  if (now < due || !stale_s.compare_exchange_strong(due, now + kReadingLasts_s)) return;
  const OverheadLock lock(process);
  reconcile_overhead(lock, device_index);
}

bool settle_overhead(Process& process, int device_index) {
  const OverheadLock lock(process);
  return reconcile_overhead(lock, device_index) != Reading::unknown;
}

void settle_unloaded_library(Process& process, int device_index) {
  const OverheadLock lock(process);
  process.overhead[device_index].code_is_kept = true;
  reconcile_overhead(lock, device_index);
}

uint32_t take_export(Process& process, uint64_t token, uint64_t units) {
  const Locked<SleepLock> lock(process.exports.lock);
  return process.exports.take(token, units);
}

namespace {

// False if only a reading can show what is free: this process may have imported some itself.
bool free_exported(Process& process, int device_index, uint64_t units, uint32_t number) {
  return process.imports.imported_of_self(device_index) == 0 &&
         process.ledger.free_exported(device_index, units, number);
}

// The same for kept memory whose descriptors are closed.
bool free_closed(Process& process, uint64_t token, int device_index, uint64_t units) {
  const Locked<SleepLock> lock(process.exports.lock);
  const uint32_t number = process.exports.number_of(token);
  if (OpenExports::kind_of(token) != OpenExports::Of::gem_buffer) {
    if (!free_exported(process, device_index, units, number)) return false;
  } else {
    // Importers would hold the dma-buf too.
    process.ledger.drop_exported(device_index, units, number);
    give_back(process, device_index, units);
  }
  process.exports.take(token, units);
  return true;
}

}  // namespace

void give_back_released_export(Process& process, int device_index, uint64_t units,
                               uint32_t number) {
  if (!free_exported(process, device_index, units, number))
    defer_exported(process, device_index, units, number);
}

bool give_back_closed_exports(Process& process) {
  bool any = false;
  process.open_exports.free_closed([&](uint64_t token, int device_index, uint64_t units) {
    const bool is_free = free_closed(process, token, device_index, units);
    any |= is_free;
    return is_free;
  });
  return any;
}

void give_back_closed_exports(const OverheadLock& lock) {
  Process& process = lock.process();
  process.open_exports.free_closed([&](uint64_t token, int device_index, uint64_t units) {
    if (!free_closed(process, token, device_index, units))
      defer_exported(lock, device_index, units, take_export(process, token, units));
    return true;
  });
}

void release_overhead(Process& process, int device_index, uint64_t units) {
  const OverheadLock lock(process);
  const uint64_t before = process.overhead[device_index].units.load(std::memory_order_relaxed);
  charge_overhead(lock, device_index, before - std::min(before, units));
}

namespace {

// Does nothing if a reading has reported the usage meanwhile, because that reading includes this.
void release_guessed(const OverheadLock& lock, const GuessedCharges::Entry& module) {
  if (module.key == 0) return;
  const Overhead& overhead = lock.process().overhead[module.device_index];
  const uint64_t before = overhead.units.load(std::memory_order_relaxed);
  if (overhead.untold)
    charge_overhead(lock, module.device_index, before - std::min(before, module.units));
}

}  // namespace

ModuleRelease::ModuleRelease(Process& process, const void* handle)
    : process_(process), handle_(handle) {
  const OverheadLock lock(process);
  guessed_ = process.guessed_charges.take(GuessedCharges::key_of(handle));
  known_ = process.modules.of_handle(handle);
  const int device_index = known_ != nullptr ? known_->device_index : guessed_.device_index;
  if (device_index >= 0) readings_ = process.overhead[device_index].readings;
  if (known_ == nullptr) return;
  before_ = *known_;
  known_->handle = &ModuleTable::kLeaving;
}

ModuleRelease::~ModuleRelease() {
  if (known_ == nullptr && guessed_.key == 0) return;
  const OverheadLock lock(process_);
  if (is_guessed()) process_.guessed_charges.enter(guessed_);
  if (KnownModule* const known = living(lock); known != nullptr)
    process_.modules.enter(known, handle_);
}

// False if a reading has reported the usage meanwhile.
bool ModuleRelease::is_guessed() const {
  return guessed_.key != 0 && process_.overhead[guessed_.device_index].readings == readings_;
}

// Null if its context has ended meanwhile.
KnownModule* ModuleRelease::living(const OverheadLock&) {
  const bool same = known_ != nullptr && known_->image == before_.image &&
                    known_->context == before_.context && known_->handle == &ModuleTable::kLeaving;
  return same ? known_ : nullptr;
}

void ModuleRelease::done(int device_index) {
  const OverheadLock lock(process_);
  if (is_guessed()) release_guessed(lock, guessed_);
  guessed_.key = 0;
  KnownModule* const known = living(lock);
  known_ = nullptr;
  if (known != nullptr) {
    known->handle = nullptr;
    device_index = known->device_index;
  }
  if (device_index < 0) return;
  Overhead& overhead = process_.overhead[device_index];
  overhead.code_is_kept = true;
  const uint64_t before = overhead.units.load(std::memory_order_relaxed);
  // A reading since then may already include it.
  const bool unseen = known != nullptr && overhead.readings == readings_;
  const bool is_apart = known != nullptr && process_.modules.is_apart(*known);
  if (unseen && is_apart && known->settled && before >= known->units && overhead.unread.take()) {
    charge_overhead(lock, device_index, before - known->units);
    return;
  }
  const bool was_exact = overhead.exact;
  const Reading reading = reconcile_overhead(lock, device_index);
  if (known == nullptr) return;
  const uint64_t after = overhead.units.load(std::memory_order_relaxed);
  const bool measured = unseen && reading == Reading::believed && was_exact && overhead.exact;
  if (known->settled) {
    if (!measured || !is_apart) return;
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
  const uint64_t own = unread_since == overhead.readings ? kChunkUnits : 0;
  const auto give_back = [&] {
    overhead.unread_arrays -= own;
    overhead.unconfirmed -= std::min(overhead.unconfirmed, own);
    charge_overhead(lock, device_index, before - std::min(before, own));
  };
  if (own > 0 && overhead.unread.take()) return give_back();
  // Once a reading has seen arrays, only another reading can show what they took.
  constexpr uint32_t kMostGone = kMostUnreadArrays / kChunkUnits;
  if (own == 0 && ++overhead.arrays_gone < kMostGone &&
      process.small_arrays.load(std::memory_order_relaxed) > 0) {
    overhead.read_again_ms.store(0, std::memory_order_relaxed);
    return;
  }
  const Reading reading = reconcile_overhead(lock, device_index);
  if (reading == Reading::believed) {
    overhead.unread.judge(overhead.units.load(std::memory_order_relaxed) + own <= before);
  } else if (reading == Reading::unknown && own > 0) {
    give_back();  // no reading will show it
  }
}

void forget_code(Process& process, uint16_t context) {
  process.libraries.forget_context(context);
  process.graphs.forget_context(context);
  const OverheadLock lock(process);
  process.modules.forget_context(context);
  process.guessed_charges.take_of(
      context, [&](const GuessedCharges::Entry& charge) { release_guessed(lock, charge); });
}

void settle_after_destroy(Process& process, int device_index, uint64_t estimate) {
  const uint64_t seen = process.ledger.context_size(device_index);
  const uint64_t one = seen != 0 ? seen : estimate;
  {
    // Beside memory that is taken later, a reading gives bounds, and may confirm too much.
    const OverheadLock lock(process);
    Overhead& overhead = process.overhead[device_index];
    overhead.unconfirmed = std::min(overhead.unconfirmed + one, overhead.units.load());
    if (reconcile_overhead(lock, device_index) != Reading::unknown) return;
  }
  release_overhead(process, device_index, one);
}

}  // namespace fracgpu
