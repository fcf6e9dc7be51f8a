// Decides what the trampolines of dlsym_interposer.S return for dlsym, dlvsym and dlopen.
//
// They are interposed by assembly that ends in a tail jump, because glibc decides from the return
// address what RTLD_NEXT, RTLD_DEFAULT and RUNPATH mean; a C function in between would change the
// answers.
//
// A vendor's name is answered with the hook for every handle, RTLD_NEXT and RTLD_DEFAULT included:
// forwarding any of them would be a one-line way around the cap. A name that the loaded driver
// lacks goes to the real dlsym, so that programs can still probe for features. A name that is
// looked up in a second copy of a driver gets no hook, which would call the first one: under a cap
// it is refused.
#include <dlfcn.h>
#include <stdint.h>

#include <atomic>

#include "shim/base/real_dlfcn.h"
#include "shim/config/cap_configured.h"
#include "shim/interpose/deepbind.h"
#include "shim/vendor/backend.h"

namespace fracgpu {

namespace {

void* cached(std::atomic<void*>& slot, const char* name) {
  void* found = slot.load(std::memory_order_relaxed);
  if (found == nullptr) {
    found = find_real_dl_function(name);
    slot.store(found, std::memory_order_relaxed);
  }
  return found;
}

void* hook_for(void* handle, const char* name, const void* caller) {
  // Every look-up of the process passes here; nearly all end at the first comparison.
  if (name == nullptr) return nullptr;
  for (const VendorBackend* const vendor : vendor_backends) {
    for (VendorLibrary* const library : vendor->libraries) {
      if (!library->has_prefix(name)) continue;
      void* const hook = library->hook_for_name(name);
      if (hook == nullptr) continue;
      // A vendor's library that looks for its own name wants the one behind it: WSL2's libcuda only
      // loads the driver proper, and would be led back to itself by the hook (HAMi-core PR 326).
      if (library->contains(caller)) {
        library->stands_before_another();
        return nullptr;
      }
      if (!library->is_another(handle)) return hook;
      return cap_is_configured() ? library->refuse(handle) : nullptr;
    }
  }
  return nullptr;
}

// Returned in two registers, as dlsym_interposer.S expects.
struct Answer {
  void* hook;  // null: jump to `real`
  void* real;
};
struct OpenAnswer {
  uint64_t flags;
  void* real;
};

}  // namespace

extern "C" {

[[gnu::visibility("hidden")]] Answer fracgpu_answer_dlsym(void* handle, const char* name,
                                                          const void* caller) {
  static std::atomic<void*> real{nullptr};
  return {hook_for(handle, name, caller), cached(real, "dlsym")};
}

[[gnu::visibility("hidden")]] Answer fracgpu_answer_dlvsym(void* handle, const char* name,
                                                           const void* caller) {
  static std::atomic<void*> real{nullptr};
  return {hook_for(handle, name, caller), cached(real, "dlvsym")};
}

// RTLD_DEEPBIND makes a library prefer its own dependencies to anything preloaded, and with it
// the real driver to our hooks. Where a cap is configured it is taken from those libraries that
// could get past us so, and from no others: programs use it to keep theirs apart.
[[gnu::visibility("hidden")]] OpenAnswer fracgpu_answer_dlopen(const char* file, int flags,
                                                               const void* caller) {
  static std::atomic<void*> real{nullptr};
  if ((flags & RTLD_DEEPBIND) != 0 && cap_is_configured() && would_bind_past_us(file, caller)) {
    flags &= ~RTLD_DEEPBIND;
  }
  return {static_cast<uint64_t>(flags), cached(real, "dlopen")};
}

}  // extern "C"

}  // namespace fracgpu
