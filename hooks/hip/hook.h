// Common start of all HIP hooks: the name for the calls under it, and the device.
#pragma once

#include "hooks/hip/runtime.h"
#include "shim/charge/upper_call.h"

namespace fracgpu::hip {

// One call of the application. HIP calls some of its own exports. Those calls are part of the
// outermost call.
class Hook {
 public:
  explicit Hook(const char* api) : call_(api) { runtime_library.resolve(); }

  // False if no cap is configured, or if HIP calls itself: the call must then pass on unchanged.
  bool active() {
    if (process_ == nullptr && call_.outermost()) process_ = Process::self();
    return process_ != nullptr;
  }
  Process& process() const { return *process_; }
  UpperCall& call() { return call_; }

  // Returns the call's result. HIP may refuse by itself, because it sees a device as small as the
  // cap. This then still reports the holders of the memory.
  hipError_t finish(hipError_t result) {
    if (result == kOutOfMemory) report_own_refusal();
    return result;
  }

 private:
  [[gnu::cold]] void report_own_refusal();

  UpperCall call_;
  Process* process_ = nullptr;
};

// The ledger's device index of HIP's device ordinal, or Process::kNotCapped / kFault.
int device_index_of(Process& process, int ordinal);

// The same for the current device of this thread.
int current_device_index(Process& process);

}  // namespace fracgpu::hip
