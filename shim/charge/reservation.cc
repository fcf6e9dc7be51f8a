// The slow path of a reservation, and the published count of allocations; see reservation.h.
#include "shim/charge/reservation.h"

#include <algorithm>

#include "shim/charge/linear.h"
#include "shim/charge/overhead.h"
#include "shim/charge/pools.h"
#include "shim/charge/refusal.h"
#include "shim/vendor/backend.h"

namespace fracgpu {

// A recorder sees a pool's memory only when its driver is asked. Pools give memory back unseen.
void Reservation::tell_pools() {
  const bool is_late = process_.pool_use_unrecorded.exchange(false, std::memory_order_relaxed);
  layout::for_each_device(*process_.ledger.map(), [&](uint32_t device_index) {
    settle_pools(process_, static_cast<int>(device_index));
    if (is_late) record_earlier_use(process_, static_cast<int>(device_index));
  });
}

// For more than this process may hold unasked; `charged` units of it are already charged.
bool Reservation::ask_ledger(uint64_t charged, Refusal& refusal) {
  process_.look_for_recorder();
  if (process_.recorder.is_on()) tell_pools();
  process_.recorder.look_for_ends(process_.ledger);
  granted_ = process_.ledger.reserve(device_index_, units_ - charged, refusal);
  // Rare enough to read what the driver took by itself meanwhile (such as code loaded by a launch).
  if (granted_ && refusal.lease_grew) refresh_overhead(process_, device_index_, units_);
  lease_grew_ |= refusal.lease_grew;
  return granted_;
}

bool Reservation::make_room(uint64_t charged, Refusal& refusal) {
  ask_ledger(charged, refusal);
  // Pools may hold unused memory, and memory that the driver took by itself may have shrunk unseen.
  if (!granted_ && refusal.fault.empty()) {
    const bool trimmed = finish_unmaps(process_) | trim_pools(process_, device_index_) |
                         trim_runtime() | give_back_closed_exports(process_);
    if (refresh_overhead(process_, device_index_, charged) || trimmed) {
      granted_ = process_.ledger.reserve(device_index_, units_ - charged, refusal);
    }
  }
  process_.recorder.look_for_ends(process_.ledger);
  lease_grew_ |= refusal.lease_grew;
  return granted_;
}

// The driver's count shows afterwards how much it was.
bool Reservation::trim_runtime() {
  const char* const key = process_.ledger.map()->devices[device_index_].key;
  const bool trimmed = backend_of(key).trim(key);
  if (trimmed) process_.overhead[device_index_].read_again_ms.store(0, std::memory_order_relaxed);
  return trimmed;
}

void Reservation::reserve_slow(uint64_t charged) {
  Refusal refusal;
  if (make_room(charged, refusal)) return;
  if (charged > 0) process_.ledger.release(device_index_, charged);
  refusal.asked += charged;
  refusal.held -= std::min(refusal.held, charged);
  refuse(refusal);
}

bool Reservation::ask(Refusal& refusal) {
  return make_room(0, refusal);
}

void Reservation::refuse(Refusal& refusal) const {
  report_refusal(process_, device_index_, call_, refusal);
}

void Reservation::refused_by_driver() const {
  report_driver_refusal(process_, device_index_, call_, units_);
}

void publish_allocation_count(Process& process, int device_index) {
  // If two threads publish at once, the later number must stay.
  Locked<SpinLock> lock(process.counting);
  process.ledger.set_allocations(
      device_index, process.allocations.count(device_index) + process.physical.count(device_index));
}

}  // namespace fracgpu
