// Readings of the driver-reported usage, and the overhead that follows from them. All amounts are
// units.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shim/charge/linear.h"
#include "shim/charge/overhead.h"

namespace fracgpu {

enum class Reading { believed, in_flight, unknown };

inline constexpr uint64_t kNotTold = UINT64_MAX;

// The bounds of the overhead by a reading, in units.
struct Bounds {
  uint64_t least = 0, most = 0;
  bool has_handed_on = false;  // they differ by memory that is charged as orphaned
  // The overhead by the requests to the kernel driver that were seen (Process::rm_memory). Not told
  // while the driver may count imports for this process that the ledger charges to nobody else.
  uint64_t by_requests = kNotTold;

  bool exact() const { return least == most; }
  // The best estimate of the overhead, which was `units` before. `unconfirmed` of them may be gone.
  // If memory was handed on, a reading cannot show whether they are, but requests can.
  uint64_t nearest_to(uint64_t units, uint64_t unconfirmed) const {
    const uint64_t estimate = has_handed_on ? units : units - unconfirmed;
    return std::clamp(by_requests != kNotTold ? by_requests : estimate, least, most);
  }
};

// Publishes the size of the overhead. Its charge does not change.
void publish_overhead(Process& process, int device_index, uint64_t units);

// Sets the overhead. `reserved` units for it are already charged and become part of it in one step:
// no process may see them counted twice and be refused.
void charge_overhead(const OverheadLock& lock, int device_index, uint64_t units,
                     uint64_t reserved = 0);

// Counts units that are already charged as overhead from now on.
void add_overhead(const OverheadLock& lock, int device_index, uint64_t units);

// Does not change the charge. `own` units are reserved by the calling thread for a context that it
// has just made.
Reading measure_overhead(const OverheadLock& lock, int device_index, uint64_t own, Bounds& bounds);

// Sets the overhead to what the driver counts for this process beyond what calls requested, if the
// reading is believed. If it is unknown, raises the overhead to `least_overhead`. `own` units are
// reserved by the calling thread.
Reading reconcile_overhead(const OverheadLock& lock, int device_index, uint64_t own = 0);

// Notes that a reading's result was charged as the overhead.
void note_reading(const OverheadLock& lock, int device_index, bool exact);

// The least overhead that this process must have, by what it has mapped; 0 if that shows nothing.
// `own` units are reserved by the calling thread.
uint64_t least_overhead(Process& process, int device_index, uint64_t own);

// How long memory info uses a reading: to the second full second. A list takes 4.49 ms, so one each
// two seconds takes 0.2 % of the time of a program that asks all the time. A refusal uses a reading
// for 100 ms. Memory info that follows it must not see more than the refusal did.
inline constexpr uint64_t kReadingLasts_s = 2;

// The most overhead that this process can have: what all processes use on the device, less what its
// calls requested. kNotTold if that is not reported, or if another thread allocates meanwhile.
// `own` units are reserved by the calling thread.
uint64_t most_overhead(Process& process, int device_index, uint64_t own);

// Charges `units`, even above the cap, if the driver counts at least that much less for this
// process than its charge. Pools give memory back unseen, which makes such a difference. Memory
// that the driver may not count, such as freed exports, makes none. The same memory is not counted
// twice before a reading. Takes no lock under which a driver is called.
bool charge_by_usage(Process& process, int device_index, uint64_t units);

// What all processes use on the device, in units. kNotTold if that is not reported, or if it
// changes.
uint64_t use_by_all(const Process& process, int device_index);

// Small arrays are charged a chunk each, until a reading shows how many chunks they share. Up to 32
// MiB may be charged too much until then. 2,000 arrays of 4 KiB take 149 readings, and 254 with
// half of it, 92 with twice as much.
inline constexpr uint64_t kChunkUnits = kPageBytes / layout::kUnit;
inline constexpr uint64_t kMostUnreadArrays = 16 * kChunkUnits;

}  // namespace fracgpu
