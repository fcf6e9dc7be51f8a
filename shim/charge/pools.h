// Charges pools by what their driver reports that they hold.
#pragma once

#include <cstdint>

#include "shim/charge/overhead.h"
#include "shim/charge/reservation.h"

namespace fracgpu {

// The most units by which a pool grows if it needs `bytes` more.
constexpr uint64_t pool_growth_units(uint64_t bytes) {
  const uint64_t chunks = bytes / kPoolChunkBytes + (bytes % kPoolChunkBytes != 0);
  return chunks * (kPoolChunkBytes / layout::kUnit);
}

// If the driver cannot be asked about a pool, its growth is left to the driver-reported usage,
// which takes `Process::cold_paths`. So each of these functions has two forms: with a Process for
// callers that do not hold that lock, and with the lock itself for those that do.

// After a call that may have changed how much a pool holds: its charge becomes what the driver
// reports. `reservation` was made for its growth, or is null. `pledge` is the part of it that was
// pledged to the table (see PoolTable). False if the pool grew by more.
bool settle_pool(Process& process, uint64_t key, Reservation* reservation, uint64_t pledge = 0);
bool settle_pool(const OverheadLock& lock, uint64_t key);

// The same for every pool on the device.
void settle_pools(Process& process, int device_index);
void settle_pools(const OverheadLock& lock, int device_index);

// Records the use of the device's pools by allocations from before a recording. Their sizes are not
// known.
void record_earlier_use(Process& process, int device_index);

// Makes the device's pools give back unused memory. True if they held any.
bool trim_pools(Process& process, int device_index);
bool trim_pools(const OverheadLock& lock, int device_index);

// An allocation from a pool, from before the driver is asked until its charge is settled. Meanwhile
// the pool is not destroyed, and no other thread can rely on its holes. Belongs to one thread.
class PoolUse {
 public:
  // `reserved`: the units that the caller has reserved for the pool's growth.
  PoolUse(Process& process, uint64_t key, uint64_t reserved) : process_(process), key_(key) {
    begin(reserved);
  }
  ~PoolUse() { end(); }
  PoolUse(const PoolUse&) = delete;
  PoolUse& operator=(const PoolUse&) = delete;

  // True if the driver uses a hole of the stream again for so many bytes, so that no room is
  // needed. No other thread allocates from the pool from then on. Nothing must be reserved. The
  // pool is charged for all of its addresses, so even if the driver has given memory back unseen
  // and has to take it again, that memory is charged.
  [[gnu::cold]] bool begin_reuse(uint64_t stream, uint64_t bytes);
  // The same for a hole that the stream comes after by an event.
  [[gnu::cold]] bool begin_reuse_after_event(uint64_t stream, uint64_t bytes);

  // The same if the pool needs to grow only by what exceeds its tail: `more` bytes. False if it has
  // no tail, or was not observed to use one so.
  [[gnu::cold]] bool begin_extension(uint64_t bytes, uint64_t& more);

  // No other thread allocates from the pool from then on, so that all its growth is this call's.
  // Nothing must be reserved. False if other threads allocate from it.
  [[gnu::cold]] bool begin_alone();

  // Between these two calls, other threads may use the pool freely.
  void end();
  void begin(uint64_t reserved);
  // Adds to the units that are reserved.
  void pledge(uint64_t units);
  // True if the driver may not be called: another thread, which relies on the pool's memory, has
  // been in it for too long.
  bool is_refused() const { return refused_; }

  struct Outcome {
    bool foreseen = true;   // it has not grown by more than was reserved
    uint64_t grown = 0;     // bytes
    uint64_t reserved = 0;  // bytes that the pool has now
  };
  // The driver has been called. True if it has handed out a whole hole: the pool is already charged
  // for that memory, so the driver need not be asked how much the pool has. The block is recorded,
  // the use has ended, and the reservation is given back.
  bool end_in_hole(uint64_t address, uint64_t bytes, Reservation& reservation);
  // After `end_in_hole` has returned false: whether the block is recorded all the same, which is
  // right if the pool has not grown.
  bool has_entered() const { return entered_; }
  // The driver has been called: the charge becomes what it reports, and the use ends. `reservation`
  // was made for growth, or is null.
  Outcome settle(Reservation* reservation);

 private:
  template <typename Fits>
  bool begin_reuse_if(Fits fits);

  Process& process_;
  const uint64_t key_;
  Pool pool_;
  uint64_t pledge_ = 0;
  bool used_ = false, refused_ = false, entered_ = false;
};

// Other processes may import the pool from now on, by the descriptor `fd`, or by a handle if that
// is negative. `by_chunk`: each chunk that they may import is listed by itself.
void note_exported_pool(Process& process, uint64_t key, int fd, bool by_chunk = false);

// Charges the device's Overhead::counted_twice with `in_hand` units, which are charged already, as
// far as they suffice. Returns the units that are left.
uint64_t pay_for_chunks(Process& process, int device_index, uint64_t in_hand);

// The pool is destroyed, and its driver can no longer be asked about it. `in_use`: allocations of
// it still live. Takes `cold_paths`.
void charge_destroyed_pool(Process& process, const Pool& pool, bool in_use);

}  // namespace fracgpu
