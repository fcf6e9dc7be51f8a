// Decides what the trampolines of dlsym_interposer.S return for dlsym, dlvsym and dlopen.
//
// The trampolines are assembly that ends in a tail jump, because glibc decides from the return
// address what RTLD_NEXT, RTLD_DEFAULT and RUNPATH mean. A C function in between would change the
// answers.
//
// A vendor's name is answered with the hook for every handle, RTLD_NEXT and RTLD_DEFAULT included:
// forwarding any of them would be a one-line way around the cap. A name that the loaded driver
// lacks goes to the real dlsym, so that programs can still probe for features. If only our own
// export has the name, it is not found. A name that is looked up in a second copy of a driver gets
// no hook, because the hook would call the first copy: under a cap it is refused.
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>

#include <atomic>

#include "shim/base/elf.h"
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

template <typename Function>
Function real_function(const char* name, std::atomic<void*>& slot) {
  return reinterpret_cast<Function>(cached(slot, name));
}

// Clears dlerror, as a successful look-up by the real dlsym does.
void* found(void* hook) {
  static constinit std::atomic<void*> slot{nullptr};
  if (const auto real = real_function<decltype(&::dlerror)>("dlerror", slot)) real();
  return hook;
}

// Sets dlerror, as a failed look-up does: looks the name up in a library that lacks it.
void note_missing(const char* name) {
  static constinit std::atomic<void*> open_slot{nullptr}, look_up_slot{nullptr};
  const auto open = real_function<decltype(&::dlopen)>("dlopen", open_slot);
  const auto look_up = real_function<decltype(&::dlsym)>("dlsym", look_up_slot);
  void* const libc = open != nullptr ? open("libc.so.6", RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  if (libc != nullptr && look_up != nullptr) look_up(libc, name);
}

// Whether a look-up by this handle searches all that was loaded at the start, including us.
bool looks_everywhere(void* handle) {
  return handle == RTLD_DEFAULT || handle == RTLD_NEXT ||
         *static_cast<const link_map*>(handle)->l_name == '\0';
}

// Whether only we have the name: a hook's name, whose driver is not loaded or lacks it, and which
// no other object has.
bool is_ours_alone(void* handle, const char* name, const void* hook) {
  if (!looks_everywhere(handle)) return false;
  const elf::Loaded other = elf::find_object([&](const elf::Loaded& object) {
    return !object.contains(hook) && elf::find_symbol(object, name) != nullptr;
  });
  return other.dynamic == nullptr;
}

// `missing`: there is neither a hook nor another symbol of the name.
void* hook_for(void* handle, const char* name, const void* caller, bool& missing) {
  // Every look-up of the process passes here; nearly all end at the first comparison.
  if (name == nullptr) return nullptr;
  for (const VendorBackend* const vendor : vendor_backends) {
    for (VendorLibrary* const library : vendor->libraries) {
      if (!library->has_prefix(name)) continue;
      void* const hook = library->hook_for_name(name);
      if (hook == nullptr) {
        const void* const own = library->export_for_name(name);
        missing = missing || (own != nullptr && is_ours_alone(handle, name, own));
        continue;
      }
      missing = false;
      // A vendor's library that looks up its own name wants the library behind it: WSL2's libcuda
      // only loads the driver proper, and the hook would lead it back to itself (HAMi-core PR 326).
      if (library->contains(caller)) {
        library->stands_before_another();
        return nullptr;
      }
      if (!library->is_another(handle)) return found(hook);
      return cap_is_configured() ? found(library->refuse(handle)) : nullptr;
    }
  }
  if (missing) note_missing(name);
  return nullptr;
}

// Set for good when a library is opened that some vendor wants to know of (`brings_others`).
constinit std::atomic<bool> others_are_expected{false};

// Libraries are assumed to make no requests before a look-up in them, or in one that loaded them.
[[gnu::cold]] void look_for_others() {
  static constinit std::atomic<uint64_t> looked_among{0};
  const uint64_t loaded = elf::objects_loaded();
  if (looked_among.load(std::memory_order_acquire) == loaded) return;
  for (const VendorBackend* const vendor : vendor_backends) vendor->others_loaded();
  looked_among.store(loaded, std::memory_order_release);
}
void note_look_up() {
  if (others_are_expected.load(std::memory_order_relaxed)) look_for_others();
}
void note_opening(const char* file) {
  if (file == nullptr || others_are_expected.load(std::memory_order_relaxed)) return;
  for (const VendorBackend* const vendor : vendor_backends) {
    if (vendor->brings_others(file) && cap_is_configured())
      others_are_expected.store(true, std::memory_order_relaxed);
  }
}

// Returned in two registers, as dlsym_interposer.S expects.
struct Answer {
  void* hook;  // null: jump to `real`
  void* real;  // null: the answer is null
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
  bool missing = false;
  note_look_up();
  void* const hook = hook_for(handle, name, caller, missing);
  return {hook, missing ? nullptr : cached(real, "dlsym")};
}

[[gnu::visibility("hidden")]] Answer fracgpu_answer_dlvsym(void* handle, const char* name,
                                                           const void* caller) {
  static std::atomic<void*> real{nullptr};
  bool missing = false;
  note_look_up();
  void* const hook = hook_for(handle, name, caller, missing);
  return {hook, missing ? nullptr : cached(real, "dlvsym")};
}

// RTLD_DEEPBIND makes a library prefer its own dependencies to anything preloaded, and with it the
// real driver to our hooks. If a cap is configured, the flag is removed for those libraries that
// could get past us that way. Others keep it: programs use it to keep their libraries apart.
[[gnu::visibility("hidden")]] OpenAnswer fracgpu_answer_dlopen(const char* file, int flags,
                                                               const void* caller) {
  static std::atomic<void*> real{nullptr};
  note_opening(file);
  if ((flags & RTLD_DEEPBIND) != 0 && cap_is_configured() && would_bind_past_us(file, caller)) {
    flags &= ~RTLD_DEEPBIND;
  }
  return {static_cast<uint64_t>(flags), cached(real, "dlopen")};
}

}  // extern "C"

}  // namespace fracgpu
