// Reservations, linear allocations and their release; see charge.h.
#include "shim/charge.h"

namespace fracgpu {

using layout::kUnit;

Reservation::Reservation(Process& process, int row, uint64_t units, const char* api)
    : process_(process), row_(row), units_(units) {
  Refusal refusal;
  granted_ = process.ledger.reserve(row, units, refusal);
  // What the driver took by itself may have shrunk unseen: look before refusing.
  if (!granted_ && refusal.fault.empty() && refresh_implicit(process, row)) {
    granted_ = process.ledger.reserve(row, units, refusal);
  }
  if (!granted_) say_refusal(process, row, api, refusal);
}

Reservation::~Reservation() {
  if (granted_ && units_ > 0) process_.ledger.release(row_, units_);
}

void Reservation::keep(uint64_t units) {
  if (units < units_) process_.ledger.release(row_, units_ - units);
  units_ = 0;
}

LinearSize linear_size(uint64_t bytes) {
  if (bytes < kSmallestWhole) return {kPageBytes / kUnit, true};
  const uint64_t pages = bytes / kPageBytes + (bytes % kPageBytes != 0);
  return {pages * (kPageBytes / kUnit), false};
}

bool record_linear(Process& process, Reservation& reservation, const Context& context,
                   uint64_t address, const LinearSize& size) {
  const Allocation allocation = {
      .key = size.shares_chunk ? chunk_key(address) : address,
      .units = static_cast<uint32_t>(size.units),
      .users = 1,
      .context = context.id,
      .row = static_cast<uint8_t>(context.row),
  };
  Allocation displaced;
  const auto added = size.shares_chunk ? process.allocations.add_user(allocation, displaced)
                                       : process.allocations.add(allocation, displaced);
  if (added == LiveMap::Added::out_of_memory) return false;
  if (displaced.key != 0) process.ledger.release(displaced.row, displaced.units);
  // The chunk was there and charged already: the driver took no new page.
  reservation.keep(added == LiveMap::Added::shared ? 0 : size.units);
  return true;
}

Release::Release(Process& process, uint64_t address) : process_(process) {
  found_ = address != 0 && (process.allocations.take(address, taken_) ||
                            process.allocations.begin_drop(chunk_key(address), taken_));
}

void Release::done() {
  if (found_ && in_chunk()) {
    taken_.units = process_.allocations.finish_drop(taken_.key, taken_.context);
  }
  if (found_ && taken_.units > 0) process_.ledger.release(taken_.row, taken_.units);
  done_ = true;
}

Release::~Release() {
  if (!found_ || done_) return;
  if (in_chunk()) {
    process_.allocations.abandon_drop(taken_.key, taken_.context);
  } else {
    Allocation displaced;
    process_.allocations.add(taken_, displaced);
  }
}

void release_context(Process& process, const Context& context) {
  if (context.id == kUntrackedContext) return;
  process.allocations.take_context(context.id, [&](const Allocation& allocation) {
    process.ledger.release(allocation.row, allocation.units);
  });
  process.contexts.recycle(context.id);
}

void say_refusal(Process& process, int row, const char* api, const Refusal& refusal) {
  unsigned held_back = 0;
  if (!logs(Level::warn) || !process.refusals_said.pass(held_back)) return;
  Message line;
  if (!refusal.fault.empty()) {
    line.format("{} refused: {}", api, refusal.fault.view());
  } else {
    const char* key = process.ledger.map()->devices[row].key;
    line.format("{} refused on {:.40}: asked {}, in use {} of cap {}", api, key,
                human_bytes(refusal.asked * kUnit).view(), human_bytes(refusal.held * kUnit).view(),
                human_bytes(refusal.cap * kUnit).view());
    if (refusal.largest_held > 0) {
      line.append("; pid {} ({:.16}) holds the most, {}", refusal.largest_pid,
                  refusal.largest_command, human_bytes(refusal.largest_held * kUnit).view());
    }
  }
  if (held_back > 0) line.append(" [{} refusals not shown]", held_back);
  say(Level::warn, line.view());
  report_call_stack();
}

void say_fault(Process& process, const char* api) {
  unsigned held_back = 0;
  if (!logs(Level::error) || !process.refusals_said.pass(held_back)) return;
  report(Level::error, "{} refused: {}", api, process.fault().view());
}

}  // namespace fracgpu
