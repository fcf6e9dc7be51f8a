// Overhead: device memory that no call asks for by size, contexts and what the driver adds to them.
#pragma once

#include <cstdint>

#include "shim/process/process.h"

namespace fracgpu {

// Holds `Process::cold_paths`, which is not recursive. A function that takes one is called with the
// lock held; a function of this header that takes a Process instead takes the lock itself.
class OverheadLock {
 public:
  explicit OverheadLock(Process& process) : process_(process), lock_(process.cold_paths) {}

  Process& process() const { return process_; }

 private:
  Process& process_;
  Locked<SpinLock> lock_;
};

// What is charged already counts as overhead from now on: only the driver-reported usage can tell
// when it is gone, and is read at the next opportunity. `exported`: others may hold it, and longer
// than this process lives.
[[gnu::cold]] void defer_to_reported_usage(Process& process, int device_index, uint64_t units,
                                           bool exported = false);
[[gnu::cold]] void defer_to_reported_usage(const OverheadLock& lock, int device_index,
                                           uint64_t units, bool exported = false);

// Memory that a call makes the driver take without naming a size: reserved by an estimate before
// the call, and corrected by the driver-reported usage after it. All amounts are units. Every
// function takes `cold_paths`, so no caller may hold it.
class OverheadReservation {
 public:
  enum class Kind { given, context, runtime, module };

  // `units`: the most that the call takes.
  OverheadReservation(Process& process, int device_index, uint64_t units, const char* api,
                      Kind kind = Kind::given);
  // For a context or a module: by the largest that was seen.
  // `estimate`: units, while none was seen.
  static OverheadReservation for_context(Process& process, int device_index, const char* api,
                                         uint64_t estimate);
  static OverheadReservation for_module(Process& process, int device_index, const char* api,
                                        uint64_t estimate);
  ~OverheadReservation();
  OverheadReservation(const OverheadReservation&) = delete;
  OverheadReservation& operator=(const OverheadReservation&) = delete;

  explicit operator bool() const { return granted_; }

  // The driver has done it. False when what it took does not fit under the cap: the caller must
  // undo it and then call `settle_overhead` or `settle_after_destroy`.
  bool made();

  // As Reservation's.
  void refused_by_driver() const;

 private:
  struct Outcome;
  // The steps of `made`.
  Outcome read_outcome(const OverheadLock& lock);
  uint64_t estimate_context();
  void learn_from(const OverheadLock& lock, const Outcome& outcome);
  void charge(const OverheadLock& lock, const Outcome& outcome);
  void report_excess(const Outcome& outcome);

  bool is_context() const { return kind_ == Kind::context || kind_ == Kind::runtime; }

  Process& process_;
  int device_index_;
  const char* api_;
  Kind kind_;
  uint64_t units_;
  uint64_t used_before_ = UINT64_MAX;  // units of all processes on the device, for contexts
  bool granted_ = false;
};

// Reads the driver-reported usage if the last reading was a while ago or failed. True when the
// overhead turned out to be less than what was charged.
// `own` units are reserved by the calling thread for a call that it has not made yet.
bool refresh_overhead(Process& process, int device_index, uint64_t own = 0);

// The driver may have given overhead back: reads its reported usage now. False where the driver
// does not report any.
bool settle_overhead(Process& process, int device_index);

// Lowers the overhead by `units`, by the caller's own knowledge.
void release_overhead(Process& process, int device_index, uint64_t units);

// The driver destroyed a context: reads the usage, or takes the estimate (units) off where the
// driver reports none.
void settle_after_destroy(Process& process, int device_index, uint64_t estimate);

// Reads the usage when much is charged for what exported pools may have released.
void settle_deferred(Process& process, int device_index);

}  // namespace fracgpu
