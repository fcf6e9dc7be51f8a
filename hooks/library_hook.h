// What the hooks of a driver's or a runtime's library begin with: is this call ours to charge?
#pragma once

#include "shim/process/hook_scope.h"
#include "shim/process/process.h"
#include "shim/vendor/vendor_library.h"

namespace fracgpu {

// One call of the application, or of a layer above on its behalf. While it lives, calls that the
// library makes to its own exports on this thread pass through.
template <VendorLibrary& library>
class LibraryHook {
 public:
  LibraryHook() {
    library.resolve();
    if (scope_.outermost()) process_ = Process::self();
  }

  // False: no cap is configured, or the library is calling itself. Pass the call on unchanged.
  bool active() const { return process_ != nullptr; }
  Process& process() const { return *process_; }

 private:
  HookScope scope_;
  Process* process_ = nullptr;
};

}  // namespace fracgpu
