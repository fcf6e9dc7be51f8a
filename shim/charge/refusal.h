// Reports refusals: recorded in the ledger, and one line for people.
#pragma once

#include <cstdint>

#include "shim/process/process.h"

namespace fracgpu {

// A call that asks for memory, as a refusal tells of it.
struct AskingCall {
  // `api`: the function, a string that outlives this. `bytes`: what the program asks for, which may
  // be less than what that takes; 0: not known.
  constexpr AskingCall(const char* api, uint64_t bytes = 0) : api(api), bytes(bytes) {}
  const char* api;
  uint64_t bytes;
};

// Records that an allocation was refused, and writes a line unless there were many lately. Needs a
// joined process; `device_index` may be negative: not known. Sets `refusal.reason` where the ledger
// failed. Takes `Process::counting`.
void report_refusal(Process& process, int device_index, const AskingCall& call, Refusal& refusal);
// The same when nothing can be allocated at all (Process::fault), which had its line when it came
// to be: here is none.
void report_fault(Process& process, const char* api);

// The same when the driver has not the memory for which `units` are reserved.
void report_driver_refusal(Process& process, int device_index, const AskingCall& call,
                           uint64_t units);

// The same when a runtime refused by itself, because it sees a device as large as the cap.
// Does nothing for a device that is not capped.
void report_runtime_refusal(Process& process, int device_index, const char* api);

}  // namespace fracgpu
