// Reservations, linear allocations and their release; see charge.h.
#include "shim/charge.h"

#include <algorithm>

#include "shim/truth.h"
#include "shim/upper_call.h"

namespace fracgpu {

using layout::kUnit;
using layout::Reason;

namespace {

Allocation entry_of(const Context& context, uint64_t key, uint64_t units) {
  return {.key = key,
          .units = static_cast<uint32_t>(units),
          .users = 1,
          .context = context.id,
          .row = static_cast<uint8_t>(context.row)};
}

// The entry is gone without its parts having been freed. Where it was a block of a runtime's, that
// has one less in use. (An exported one was not counted any more.)
void discard_block(Process& process, const Allocation& entry) {
  if ((entry.key & 1) != 0 && !entry.exported) {
    process.blocks[entry.row][entry.pool].discarded();
  }
}

// The driver has made new memory at the address of this entry, if it is one.
void give_back_displaced(Process& process, const Allocation& entry) {
  if (entry.key == 0) [[likely]]
    return;
  discard_block(process, entry);
  give_back(process, entry.row, entry.units, entry.exported);
}

// For the lines after a refusal, where they are wanted.
void note_call_site(Process& process, const Allocation& allocation) {
  if (process.keeps_call_sites) process.call_sites.enter(process.allocations, allocation);
}

}  // namespace

// For more than this process may hold unasked.
void Reservation::ask_the_others(uint64_t charged) {
  Refusal refusal;
  const uint64_t more = units_ - charged;
  granted_ = process_.ledger.reserve(row_, more, refusal);
  // Rare enough to see what the driver took by itself meanwhile (code loaded by a launch, say).
  if (granted_ && refusal.lease_grew) refresh_implicit(process_, row_, units_);
  // Pools may hold unused memory, and what the driver took by itself may have shrunk unseen.
  if (!granted_ && refusal.fault.empty()) {
    const bool trimmed = trim_pools(process_, row_);
    if (refresh_implicit(process_, row_, charged) || trimmed) {
      granted_ = process_.ledger.reserve(row_, more, refusal);
    }
  }
  lease_grew_ = refusal.lease_grew;
  if (granted_) return;
  if (charged > 0) process_.ledger.release(row_, charged);
  refusal.asked += charged;
  refusal.held -= std::min(refusal.held, charged);
  say_refusal(process_, row_, api_, refusal);
}

void Reservation::refused_by_driver() const {
  say_driver_refusal(process_, row_, api_, units_);
}

void tell_allocations(Process& process, int row) {
  // Two threads at once: the number of the later one is the one to stay.
  Locked<SpinLock> lock(process.counting);
  process.ledger.set_allocations(row, process.allocations.count(row) + process.physical.count(row));
}

void give_back(Process& process, int row, uint64_t units, bool exported) {
  if (exported) return leave_to_truth(process, row, units, true);
  if (process.ledger.release(row, units)) tell_allocations(process, row);
}

void give_back(Process& process, const PhysicalTable::Freed& freed) {
  if (freed.memory == 0) return;
  if (freed.units > 0) give_back(process, freed.row, freed.units, freed.exported);
  if (freed.exporter != 0) {
    process.imports.leave(process.ledger, freed.exporter, freed.row, freed.imported);
  }
  // A multicast object keeps what is bound to it.
  process.physical.drop_owned(
      PhysicalTable::owner_key(freed.memory),
      [&](const PhysicalTable::Freed& bound) { give_back(process, bound); });
}

bool record_linear(Process& process, Reservation& reservation, const Context& context,
                   uint64_t address, const LinearSize& size) {
  Allocation allocation =
      entry_of(context, size.shares_chunk ? chunk_key(address) : address, size.units);
  allocation.managed = size.managed;
  Allocation displaced;
  const auto added = size.shares_chunk ? process.allocations.add_user(allocation, displaced)
                                       : process.allocations.add(allocation, displaced);
  if (added == LiveMap::Added::out_of_memory) return false;
  give_back_displaced(process, displaced);
  // The chunk was there and charged already: the driver took no new page.
  reservation.keep(added == LiveMap::Added::shared ? 0 : size.units);
  note_call_site(process, allocation);
  return true;
}

bool enter_managed(Process& process, const Context& context, uint64_t key, uint64_t units) {
  Allocation displaced;
  Allocation allocation = entry_of(context, key, units);
  allocation.managed = true;
  const auto added = process.allocations.add(allocation, displaced);
  give_back_displaced(process, displaced);
  if (added == LiveMap::Added::out_of_memory) {
    process.ledger.release(context.row, units);
    return false;
  }
  note_call_site(process, allocation);
  return true;
}

bool record_part(Process& process, Reservation& reservation, const Context& context, int pool,
                 uint64_t address, const BlockCache::Begun& begun) {
  Allocation block = entry_of(context, chunk_key(address), BlockCache::kBlockUnits);
  block.pool = static_cast<uint8_t>(pool);
  Allocation displaced;
  const auto added = process.allocations.add_user(block, displaced);
  if (added == LiveMap::Added::out_of_memory) return false;
  give_back_displaced(process, displaced);
  BlockCache& blocks = process.blocks[context.row][pool];
  if (added == LiveMap::Added::fresh) {
    reservation.keep(BlockCache::kBlockUnits);
    if (begun.from_empty) blocks.filled();
  } else if (blocks.shared(begun)) {
    reservation.take();
  }
  return true;
}

uint64_t Release::finish(bool lingers) {
  done_ = true;
  if (!found_) return 0;
  if (in_chunk()) {
    taken_.units = process_.allocations.finish_drop(taken_, &taken_, lingers);
  }
  return taken_.units;
}

void Release::done() {
  // A small array may still be in the chunk; nothing tells but the truth.
  const bool shared =
      found_ && in_chunk() && process_.small_arrays.load(std::memory_order_relaxed) > 0;
  const uint64_t units = finish(false);
  if (units > 0) {
    if ((shared || taken_.lingers) && !taken_.exported) {
      leave_to_truth(process_, taken_.row, units);
    } else {
      give_back(process_, taken_.row, units, taken_.exported);
    }
  }
  if (found_ && units == 0 && !in_chunk()) {
    process_.small_arrays.fetch_sub(1, std::memory_order_relaxed);
    settle_implicit(process_, taken_.row);
  }
}

void Release::done_in_block() {
  const bool block = found_ && in_chunk();
  const uint64_t units = finish(false);
  if (units == 0) return;
  if (!block || taken_.exported) return give_back(process_, taken_.row, units, taken_.exported);
  if (const uint32_t gone = process_.blocks[taken_.row][taken_.pool].left(); gone > 0) {
    give_back(process_, taken_.row, gone * BlockCache::kBlockUnits, false);
  }
}

void Release::left_to_truth() {
  if (const uint64_t units = finish(true); units > 0) leave_to_truth(process_, taken_.row, units);
}

void Release::put_back() {
  if (in_chunk()) {
    process_.allocations.abandon_drop(taken_);
  } else {
    Allocation displaced;
    process_.allocations.add(taken_, displaced);
  }
}

bool record_small_array(Process& process, const Context& context, uint64_t handle) {
  Allocation displaced;
  return process.allocations.add(entry_of(context, handle, 0), displaced) == LiveMap::Added::fresh;
}

void release_context(Process& process, const Context& context) {
  if (context.id == kUntrackedContext) return;
  // The map is locked while it is visited, and whoever reads the truth locks the map: what is left
  // to the truth waits until the map is free again.
  uint64_t exported[layout::kMaxDevices] = {};
  process.allocations.take_context(context.id, [&](const Allocation& allocation) {
    if (allocation.exported) {
      exported[allocation.row] += allocation.units;
    } else {
      discard_block(process, allocation);
      process.ledger.release(allocation.row, allocation.units);
    }
    if (allocation.units == 0) process.small_arrays.fetch_sub(1, std::memory_order_relaxed);
  });
  for (int row = 0; row < static_cast<int>(layout::kMaxDevices); ++row) {
    if (exported[row] > 0) give_back(process, row, exported[row], true);
  }
  process.contexts.recycle(context.id);
}

void say_refusal(Process& process, int row, const char* api, Refusal& refusal) {
  unsigned held_back = 0;
  UpperCall::note_said();
  if (!refusal.fault.empty()) refusal.reason = Reason::ledger;
  process.ledger.record(row, api, refusal);
  if (row >= 0) tell_allocations(process, row);
  if (!logs(Level::warn) || !process.refusals_said.pass(held_back)) return;
  Message line;
  if (refusal.reason == Reason::ledger) {
    line.format("{} refused: {}", api, refusal.fault.view());
  } else {
    const char* key = process.ledger.map()->devices[row].key;
    line.format("{} refused on {}: ", api, truth::describe(key).view());
    if (refusal.reason == Reason::runtime) {
      line.append("the runtime is out of memory by its own count, ");
    } else {
      line.append("asked {}, ", human_bytes(refusal.asked * kUnit).view());
    }
    if (refusal.reason == Reason::driver) line.append("which the driver does not have; ");
    line.append("in use {} of cap {}", human_bytes(refusal.held * kUnit).view(),
                human_bytes(refusal.cap * kUnit).view());
    if (refusal.largest_held > 0) {
      line.append("; pid {} ({:.16}) holds the most, {}", refusal.largest_pid,
                  refusal.largest_command, human_bytes(refusal.largest_held * kUnit).view());
    }
  }
  if (held_back > 0) line.append(" [{} refusals not shown]", held_back);
  say(Level::warn, line.view());
  report_call_stack();
  if (row >= 0) process.call_sites.report(process.allocations, row);
}

void say_driver_refusal(Process& process, int row, const char* api, uint64_t units) {
  Refusal refusal{.reason = Reason::driver};
  process.ledger.explain(row, units, refusal);
  refusal.held -= std::min(refusal.held, units);
  say_refusal(process, row, api, refusal);
}

void say_own_refusal(Process& process, int row, const char* api) {
  if (row < 0) return;
  Refusal refusal{.reason = Reason::runtime};
  process.ledger.explain(row, 0, refusal);
  say_refusal(process, row, api, refusal);
}

void say_fault(Process& process, const char* api) {
  unsigned held_back = 0;
  if (process.has_joined()) process.ledger.record(-1, api, {.reason = Reason::ledger});
  if (!logs(Level::error) || !process.refusals_said.pass(held_back)) return;
  const std::string_view why = process.fault().view();
  report(Level::error, "{} refused: {}", api,
         why.empty() ? "the driver does not tell whose memory it would be" : why);
}

}  // namespace fracgpu
