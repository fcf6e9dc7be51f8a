// Reports refusals: recorded in the ledger, and one line for people.
#pragma once

#include <cstdint>

#include "shim/process/process.h"

namespace fracgpu {

// Records that an allocation was refused, and says why unless too much was said lately.
void report_refusal(Process& process, int device_index, const char* api, Refusal& refusal);
void report_fault(Process& process, const char* api);

// The same when the driver has not the memory for which `units` are reserved.
void report_driver_refusal(Process& process, int device_index, const char* api, uint64_t units);

// The same when a runtime refused by itself, by what it was told of the capped device.
void report_runtime_refusal(Process& process, int device_index, const char* api);

}  // namespace fracgpu
