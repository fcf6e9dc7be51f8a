// Readings of the driver-reported usage, and what they make of the overhead. For overhead.cc and
// overhead_release.cc alone; others use overhead.h. All amounts are units.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shim/charge/linear.h"
#include "shim/charge/overhead.h"

namespace fracgpu {

enum class Reading { believed, in_flight, unknown };

// Between which two amounts the overhead is by a reading, in units.
struct Bounds {
  uint64_t least = 0, most = 0;
  bool has_handed_on = false;  // they differ by memory that is charged as orphaned

  bool exact() const { return least == most; }
  // What is known of it, `unconfirmed` units of which may be gone. Beside memory that was handed on
  // a reading cannot tell whether they are.
  uint64_t nearest_to(uint64_t units, uint64_t unconfirmed) const {
    return std::clamp(has_handed_on ? units : units - unconfirmed, least, most);
  }
};

// Shows others how large the overhead is: what it is charged does not change.
void publish_overhead(Process& process, int device_index, uint64_t units);

// Sets the overhead. `reserved` units for it are charged already and become part of it, in
// one step: nobody may see them counted twice and be refused.
void charge_overhead(const OverheadLock& lock, int device_index, uint64_t units,
                     uint64_t reserved = 0);

// What is charged already counts as overhead from now on.
void add_overhead(const OverheadLock& lock, int device_index, uint64_t units);

// Changes nothing of the charge. `own` units are reserved by the calling thread for a context that
// it has just made.
Reading measure_overhead(const OverheadLock& lock, int device_index, uint64_t own, Bounds& bounds);

// Sets the overhead to what the driver counts for this process beyond what calls asked for.
// Only a believed reading changes anything. `own` units are reserved by the calling thread.
Reading reconcile_overhead(const OverheadLock& lock, int device_index, uint64_t own = 0);

// A reading has told how large the overhead is, and it is charged so.
void note_reading(const OverheadLock& lock, int device_index, bool exact);

// The least overhead that this process must have, by what it has mapped; 0 where that tells
// nothing. `own` units are reserved by the calling thread.
uint64_t least_overhead(Process& process, int device_index, uint64_t own);

// How long memory info answers by a reading: to the next full second. A list of 4.49 ms each second
// takes 0.5 % of the time of a program that asks all the time.
inline constexpr uint64_t kReadingLasts_s = 1;

inline constexpr uint64_t kNotTold = UINT64_MAX;

// The most overhead that this process can have: what all processes have on the device, less what
// its calls asked for. kNotTold where that is not told, or another thread allocates meanwhile.
// `own` units are reserved by the calling thread.
uint64_t most_overhead(Process& process, int device_index, uint64_t own);

// Charges `units`, even above the cap, if the driver counts at least as much less for this process
// than it is charged for, since pools give memory back unseen. The same memory is not counted twice
// before a reading. Takes no lock under which a driver is called.
bool charge_by_usage(Process& process, int device_index, uint64_t units);

// What all processes have on the device, in units, or kNotTold, also where it does not stand still.
uint64_t use_by_all(const Process& process, int device_index);

// Small arrays that are charged a chunk each, until a reading tells how many they share: 32 MiB,
// which may be charged too much until then. 2,000 arrays of 4 KiB take 149 readings, and 254 with
// half of it, 92 with twice as much.
inline constexpr uint64_t kChunkUnits = kPageBytes / layout::kUnit;
inline constexpr uint64_t kMostUnreadArrays = 16 * kChunkUnits;

}  // namespace fracgpu
