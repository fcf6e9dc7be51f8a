// Reports refusals: recorded in the ledger, and one line for people.
#pragma once

#include <cstdint>

#include "shim/process/process.h"

namespace fracgpu {

// A call that requests memory, for reports of refusals.
struct AskingCall {
  // `api`: the function, a string that outlives this. `bytes`: what the program requests, which may
  // be less than what that takes; 0: not known.
  constexpr AskingCall(const char* api, uint64_t bytes = 0) : api(api), bytes(bytes) {}
  const char* api;
  uint64_t bytes;
};

// Records that an allocation was refused, and writes a line unless there were many lately. Needs a
// joined process; `device_index` may be negative: not known. Sets `refusal.reason` if the ledger
// failed. Takes `Process::counting`.
void report_refusal(Process& process, int device_index, const AskingCall& call, Refusal& refusal);
// The same if nothing can be allocated at all. Process::fault and device_fault had their line when
// they occurred. A line is written only for other reasons, such as no free descriptor.
void report_fault(Process& process, const char* api);

// The same if the driver does not have the memory for which `units` are reserved.
void report_driver_refusal(Process& process, int device_index, const AskingCall& call,
                           uint64_t units);

// The same if a runtime refused by itself, because it sees a device as large as the cap. Does
// nothing for a device that is not capped.
void report_runtime_refusal(Process& process, int device_index, const char* api);

}  // namespace fracgpu
