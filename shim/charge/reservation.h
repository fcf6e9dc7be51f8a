// Room under the cap for one call, taken before the driver is called.
//
// Reserve, then call the driver, then keep or roll back. A hook knows its vendor's API and a
// reservation; it knows nothing of shared memory. The amounts are what becomes physical, rounded as
// the driver rounds, so that the ledger and the driver agree. A thread may use a reservation
// without holding a lock; the slow path may take the process's `cold_paths`.
#pragma once

#include <cstdint>

#include "shim/charge/refusal.h"
#include "shim/process/process.h"

namespace fracgpu {

// Writes into the ledger how many allocations of this process live on the device. Called when the
// slow path is taken anyway (a lease has grown, the driver-reported usage was read, memory was
// refused). To show frees as well, also called each time that half of the memory is gone. Takes
// `Process::counting` and, shard by shard, the locks of the tables.
[[gnu::cold]] void publish_allocation_count(Process& process, int device_index);

// Room under the cap, taken before the driver is called. Belongs to one thread; the slow path may
// take `Process::cold_paths`, which the caller must not hold.
class Reservation {
 public:
  // Reserves `units` on the device for the call. `charged` of them (at most `units`) are already
  // charged and become part of the reservation. If the cap has no room, writes one line on stderr
  // (rate-limited), gives `charged` back, and is false.
  Reservation(Process& process, int device_index, uint64_t units, const AskingCall& call,
              uint64_t charged = 0)
      : process_(process),
        device_index_(device_index),
        units_(units),
        call_(call),
        granted_(units == charged ||
                 process.ledger.reserve_within_lease(device_index, units - charged)) {
    if (!granted_) reserve_slow(charged);
  }

  // The same, but only within the lease. If the lease is too small, nothing is reported, and `ask`
  // continues.
  struct Unasked {};
  Reservation(Process& process, int device_index, uint64_t units, const AskingCall& call, Unasked)
      : process_(process),
        device_index_(device_index),
        units_(units),
        call_(call),
        granted_(units == 0 || process.ledger.reserve_within_lease(device_index, units)) {}
  // Makes room, as the first form does. False sets `refusal` to the reason, for `refuse`, which
  // reports it. The caller may also call this again when there may be more room.
  [[gnu::cold]] bool ask(Refusal& refusal);
  // The same, but gives back nothing that the process has.
  [[gnu::cold]] bool ask_ledger(Refusal& refusal) { return ask_ledger(0, refusal); }
  [[gnu::cold]] void refuse(Refusal& refusal) const;

  // Gives back what was not kept. If the lease had to grow, publishes how many allocations live.
  ~Reservation() {
    if (granted_ && units_ > 0) process_.ledger.release(device_index_, units_);
    if (lease_grew_) publish_allocation_count(process_, device_index_);
  }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  explicit operator bool() const { return granted_; }

  // The driver took `units` (at most those reserved); the rest is given back now. Call it once.
  void keep(uint64_t units) {
    if (units < units_) process_.ledger.release(device_index_, units_ - units);
    units_ = 0;
  }

  // Hands all of it over: the caller keeps or gives back the returned units.
  uint64_t take() {
    const uint64_t units = granted_ ? units_ : 0;
    units_ = 0;
    return units;
  }
  uint64_t units() const { return granted_ ? units_ : 0; }
  const AskingCall& call() const { return call_; }
  int device_index() const { return device_index_; }
  bool lease_grew() const { return lease_grew_; }

  // The driver does not have the memory: reports a refusal. The destructor gives back as usual.
  [[gnu::cold]] void refused_by_driver() const;

 private:
  [[gnu::cold]] void reserve_slow(uint64_t charged);
  bool make_room(uint64_t charged, Refusal& refusal);
  bool ask_ledger(uint64_t charged, Refusal& refusal);
  [[gnu::cold]] void tell_pools();
  bool trim_runtime();

  Process& process_;
  int device_index_;
  uint64_t units_;
  AskingCall call_;
  bool granted_;
  bool lease_grew_ = false;
};

}  // namespace fracgpu
