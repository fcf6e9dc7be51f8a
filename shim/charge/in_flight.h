// Marks the calls during which a reading of the driver-reported usage means nothing.
#pragma once

#include "shim/process/process.h"

namespace fracgpu {

// While a scope exists, its thread may be between the driver's call and the tables' record of it,
// for memory that goes with a context, or with its last handle or mapping. The driver no longer
// counts that memory, and the ledger still does. A reading would subtract the difference from the
// overhead, and the release would then subtract it again. Any number of scopes may exist at once,
// on any threads. No lock is taken.
class InFlightScope {
 public:
  explicit InFlightScope(Process& process) : process_(process) { ++process_.in_flight; }
  ~InFlightScope() {
    ++process_.in_flight_ended;  // first: a thread that sees none under way then sees the end
    --process_.in_flight;
  }
  InFlightScope(const InFlightScope&) = delete;
  InFlightScope& operator=(const InFlightScope&) = delete;

 private:
  Process& process_;
};

}  // namespace fracgpu
