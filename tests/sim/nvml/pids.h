// The PIDs that the simulated NVML gives.
#pragma once

#include "sim/node/node.h"

namespace sim {

// True for the driver version `text` ("535.129.03") if it is at least this one.
bool driver_is_since(const char* text, int major, int minor, int patch);

// The process's PID as this driver would tell the calling process; 0 if it tells nothing of it.
int pid_for_caller(const ProcessInfo& process);

}  // namespace sim
