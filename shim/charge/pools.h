// Charges pools by what their driver reports that they hold.
#pragma once

#include <cstdint>

#include "shim/charge/overhead.h"
#include "shim/charge/reservation.h"

namespace fracgpu {

// Pools and graph memory grow by chunks of this size, or by what is asked for where that is more.
// (Public behaviour, not documented and not measured.)
inline constexpr uint64_t kPoolChunkBytes = 32u << 20;

// Where the driver cannot be asked about a pool, its growth is left to the driver-reported usage,
// which takes `Process::cold_paths`. So each of these comes in two forms: with a Process for
// callers that do not hold that lock, and with the lock itself for those that do.

// After a call that may have changed how much a pool holds: its charge becomes what the driver
// reports. `reservation` is what was reserved for its growth, or null. False when it grew by more.
bool settle_pool(Process& process, uint64_t key, Reservation* reservation);
bool settle_pool(const OverheadLock& lock, uint64_t key);

// The same for every pool on the device.
void settle_pools(Process& process, int device_index);
void settle_pools(const OverheadLock& lock, int device_index);

// Makes the device's pools give back what they hold unused. True if they held any.
bool trim_pools(Process& process, int device_index);
bool trim_pools(const OverheadLock& lock, int device_index);

// The pool may be imported by other processes from now on. Once per pool is enough.
void note_exported_pool(Process& process, uint64_t key);

// The pool is destroyed and cannot be asked any more; `in_use`: allocations of it
// still live. Takes `cold_paths`.
void charge_destroyed_pool(Process& process, const Pool& pool, bool in_use);

}  // namespace fracgpu
