// Whether the memory of a dead process is free again.
#pragma once

#include "shim/ledger/ledger.h"

namespace fracgpu {

// A Ledger::ReleaseProbe. What the driver's list of processes says of the process counts, where it
// can. Where it says nothing (in a private PID namespace), or may say nothing too early (KFD), the
// memory is taken to be held while the device's own sum does not show that it is free, for a
// bounded time. Reads files and asks the driver, which takes up to milliseconds.
Ledger::DriverRelease driver_released(const DeadProcess& dead, const char* device_key);

}  // namespace fracgpu
