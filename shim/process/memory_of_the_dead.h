// Whether the memory of a dead process is free again.
#pragma once

#include "shim/ledger/ledger.h"

namespace fracgpu {

// A Ledger::ReleaseProbe. Uses the driver's list of processes if it can. The list may not show the
// process (in a private PID namespace), or may drop it too early (KFD). The memory then counts as
// held until the device's total usage shows that it is free, for a bounded time. Reads files and
// asks the driver, which takes up to milliseconds.
Ledger::DriverRelease driver_released(const DeadProcess& dead, const char* device_key);

}  // namespace fracgpu
