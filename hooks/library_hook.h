// Common start of the hooks of a driver's or a runtime's library: whether to charge the call.
#pragma once

#include "shim/process/hook_scope.h"
#include "shim/process/process.h"
#include "shim/vendor/vendor_library.h"

namespace fracgpu {

// One call of the application, or of a layer above on its behalf. While it lives, calls of the
// library to its own exports on this thread pass through.
template <VendorLibrary& library>
class LibraryHook {
 public:
  LibraryHook() {
    library.resolve();
    if (scope_.outermost()) process_ = Process::self();
  }

  // False if no cap is configured, or if the library calls itself: the call must then pass on
  // unchanged.
  bool active() const { return process_ != nullptr; }
  Process& process() const { return *process_; }

 private:
  HookScope scope_;
  Process* process_ = nullptr;
};

}  // namespace fracgpu
