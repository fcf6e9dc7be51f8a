// NVML as this command calls it: found while it runs, initialised once, never closed, because the
// process ends soon and a driver's library may not like it.
#pragma once

#include <dlfcn.h>

#include "hooks/nvml/abi.h"

namespace fracgpu::tools {

class NvmlLibrary {
 public:
  // The machine's. Calls nothing of it where there is none.
  static const NvmlLibrary& get() {
    static const NvmlLibrary library;
    return library;
  }

  bool ready() const { return ready_; }

  // Null where the library has no such function.
  template <typename Function>
  Function* find(const char* name) const {
    return library_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library_, name));
  }

 private:
  NvmlLibrary() : library_(dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL)) {
    const auto init = find<nvml::nvmlReturn_t()>("nvmlInit_v2");
    ready_ = init != nullptr && init() == nvml::kSuccess;
  }

  void* library_;
  bool ready_ = false;
};

}  // namespace fracgpu::tools
