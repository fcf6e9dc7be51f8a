// Decides what the doors of doors.S answer.
//
// A vendor's name is answered with the hook for every handle, RTLD_NEXT and RTLD_DEFAULT included:
// forwarding any of them would be a one-line way around the cap. A name that the loaded driver
// does not have is left to the real dlsym, so that programs that probe for features still can.
#include "shim/doors.h"

#include <dlfcn.h>
#include <stdint.h>

#include <atomic>

#include "shim/elf.h"
#include "shim/process.h"
#include "shim/vendor_library.h"

namespace fracgpu {

void* find_real_dl_function(const char* name) {
  // Before glibc 2.34 they live in libdl.so.2; afterwards that is an empty shell.
  void* found = elf::find_symbol("libc.so.6", name);
  return found != nullptr ? found : elf::find_symbol("libdl.so.2", name);
}

namespace {

void* cached(std::atomic<void*>& slot, const char* name) {
  void* found = slot.load(std::memory_order_relaxed);
  if (found == nullptr) {
    found = find_real_dl_function(name);
    slot.store(found, std::memory_order_relaxed);
  }
  return found;
}

void* hook_for(const char* name) {
  // Every look-up of the process passes here; nearly all end at the first comparison.
  if (name == nullptr) return nullptr;
  size_t count = 0;
  VendorLibrary* const* vendors = vendor_libraries(count);
  for (size_t i = 0; i < count; ++i) {
    if (vendors[i]->has_prefix(name)) {
      if (void* hook = vendors[i]->hook_for_name(name); hook != nullptr) return hook;
    }
  }
  return nullptr;
}

// Returned in two registers, as doors.S expects.
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

[[gnu::visibility("hidden")]] Answer fracgpu_answer_dlsym(void*, const char* name) {
  static std::atomic<void*> real{nullptr};
  return {hook_for(name), cached(real, "dlsym")};
}

[[gnu::visibility("hidden")]] Answer fracgpu_answer_dlvsym(void*, const char* name) {
  static std::atomic<void*> real{nullptr};
  return {hook_for(name), cached(real, "dlvsym")};
}

// RTLD_DEEPBIND makes a library prefer its own dependencies to anything preloaded, and with it
// the real driver to our hooks. It is taken off only where a cap is configured.
[[gnu::visibility("hidden")]] OpenAnswer fracgpu_answer_dlopen(const char*, int flags) {
  static std::atomic<void*> real{nullptr};
  if ((flags & RTLD_DEEPBIND) != 0 && cap_is_configured()) flags &= ~RTLD_DEEPBIND;
  return {static_cast<uint64_t>(flags), cached(real, "dlopen")};
}

}  // extern "C"

}  // namespace fracgpu
