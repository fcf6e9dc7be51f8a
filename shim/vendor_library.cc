// Resolves a vendor's functions once; see vendor_library.h.
//
// No lock: threads that race to resolve write the same addresses into the same slots.
#include "shim/vendor_library.h"

#include <dlfcn.h>
#include <string.h>

#include "shim/doors.h"
#include "shim/elf.h"

namespace fracgpu {

bool VendorLibrary::resolve() {
  if (resolved_.load(std::memory_order_acquire)) return true;
  if (!elf::is_loaded(soname_)) return false;
  const auto real_dlopen = real_dl_function<decltype(&::dlopen)>("dlopen");
  if (real_dlopen == nullptr ||
      real_dlopen(soname_.data(), RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) == nullptr) {
    return false;
  }
  for (size_t i = 0; i < count_; ++i) {
    functions_[i].real->store(elf::find_symbol(soname_, functions_[i].name),
                              std::memory_order_relaxed);
  }
  resolved_.store(true, std::memory_order_release);
  return true;
}

bool VendorLibrary::has_prefix(const char* name) const {
  return strncmp(name, prefix_.data(), prefix_.size()) == 0;
}

void* VendorLibrary::hook_for_name(const char* name) {
  for (size_t i = 0; i < count_; ++i) {
    const Function& function = functions_[i];
    if (function.hook == nullptr || strcmp(function.name, name) != 0) continue;
    const bool exists = resolve() && function.real->load(std::memory_order_relaxed) != nullptr;
    return exists ? function.hook : nullptr;
  }
  return nullptr;
}

void* VendorLibrary::hook_for_real(const void* real) const {
  if (real == nullptr) return nullptr;
  for (size_t i = 0; i < count_; ++i) {
    const Function& function = functions_[i];
    if (function.real->load(std::memory_order_relaxed) == real) return function.hook;
  }
  return nullptr;
}

}  // namespace fracgpu
