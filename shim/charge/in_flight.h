// Marks the calls during which a reading of the driver-reported usage means nothing.
#pragma once

#include "shim/process/process.h"

namespace fracgpu {

// While one lives, its thread may be between the driver's call and the tables' record of it: memory
// that goes with a context, or with its last handle or mapping. The driver no longer counts that,
// and the ledger still does: a reading would take the difference from the overhead, and the release
// would then take it again. Any number may live at once, on any threads; no lock is taken.
class InFlightScope {
 public:
  explicit InFlightScope(Process& process) : process_(process) { ++process_.in_flight; }
  ~InFlightScope() {
    ++process_.in_flight_ended;  // first, so that who sees none under way sees that there was one
    --process_.in_flight;
  }
  InFlightScope(const InFlightScope&) = delete;
  InFlightScope& operator=(const InFlightScope&) = delete;

 private:
  Process& process_;
};

}  // namespace fracgpu
