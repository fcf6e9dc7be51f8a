// What every CUDA hook begins with: is this call ours to charge, and on which device?
#pragma once

#include "hooks/cuda/driver.h"
#include "shim/process.h"

namespace fracgpu::cuda {

// One call of the application. While it lives, calls that the driver makes to its own exports on
// this thread pass through.
class Hook {
 public:
  Hook() {
    driver_library.resolve();
    if (scope_.outermost()) process_ = Process::self();
  }

  // False: no cap is configured, or the driver is calling itself. Pass the call on unchanged.
  bool active() const { return process_ != nullptr; }
  Process& process() const { return *process_; }

 private:
  HookScope scope_;
  Process* process_ = nullptr;
};

// The context current on this thread, with its device's row. False when there is none: the driver
// is then left to say so.
bool current_context(Process& process, Context& context);

// The ledger's row of a device ordinal, or Process::kNotCapped / kFault.
int row_of(Process& process, CUdevice device);

// Drops the memory that is mapped to tiles of a sparse array which the driver has destroyed
// (vmm.cc).
void forget_mapped_array(Process& process, const void* array);

}  // namespace fracgpu::cuda
