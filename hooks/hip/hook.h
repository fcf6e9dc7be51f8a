// What every HIP hook begins with: its name for the calls under it, and the device it is on.
#pragma once

#include "hooks/hip/runtime.h"
#include "shim/charge/upper_call.h"

namespace fracgpu::hip {

// One call of the application. HIP calls some of its own exports: those are part of the outermost
// call.
class Hook {
 public:
  explicit Hook(const char* api) : call_(api) { runtime_library.resolve(); }

  // False: no cap is configured, or HIP is calling itself. Pass the call on unchanged.
  bool active() {
    if (process_ == nullptr && call_.outermost()) process_ = Process::self();
    return process_ != nullptr;
  }
  Process& process() const { return *process_; }
  UpperCall& call() { return call_; }

  // The call's result, to return: when HIP refused by itself, by what it was told of the capped
  // device, the user is told who holds the memory all the same.
  hipError_t finish(hipError_t result) {
    if (result == kOutOfMemory) say_own();
    return result;
  }

 private:
  [[gnu::cold]] void say_own();

  UpperCall call_;
  Process* process_ = nullptr;
};

// The ledger's device index of a device as HIP numbers them, or Process::kNotCapped / kFault.
int device_index_of(Process& process, int ordinal);

// The same of the device that is current on this thread.
int current_row(Process& process);

}  // namespace fracgpu::hip
