// Resolves a vendor's functions once; see vendor_library.h.
//
// No lock: threads that race to resolve write the same addresses into the same slots.
#include "shim/vendor_library.h"

#include <dlfcn.h>
#include <string.h>

#include "shim/doors.h"
#include "shim/elf.h"

namespace fracgpu {

std::string_view VendorLibrary::soname() const {
  for (const std::string_view soname : sonames_) {
    if (soname.empty()) continue;
    if (const std::string_view loaded = elf::loaded_soname(soname); !loaded.empty()) return loaded;
  }
  return sonames_[0];
}

bool VendorLibrary::resolve_now() {
  const std::string_view loaded = soname();
  if (!elf::is_loaded(loaded)) return false;
  const auto real_dlopen = real_dl_function<decltype(&::dlopen)>("dlopen");
  if (real_dlopen == nullptr ||
      real_dlopen(loaded.data(), RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) == nullptr) {
    return false;
  }
  for (size_t i = 0; i < count_; ++i) {
    void* const real = elf::find_symbol(loaded, functions_[i].name);
    functions_[i].real->store(real, std::memory_order_relaxed);
    if (real == nullptr) continue;
    const auto entry = static_cast<uint16_t>(i + 1);
    for (size_t slot = slot_of(real);; slot = (slot + 1) % kAddressSlots) {
      uint16_t known = 0;
      if (by_address_[slot].compare_exchange_strong(known, entry) || known == entry) break;
    }
  }
  resolved_.store(true, std::memory_order_release);
  return true;
}

bool VendorLibrary::has_prefix(const char* name) const {
  return strncmp(name, prefix_.data(), prefix_.size()) == 0;
}

size_t VendorLibrary::slot_of(const void* real) {
  return reinterpret_cast<uint64_t>(real) * 0x9e3779b97f4a7c15 >> 55;  // the top 9 bits
}

void* VendorLibrary::hook_for_name(const char* name) {
  const uint16_t* const end = by_name_ + count_;
  const uint16_t* const found =
      std::lower_bound(by_name_, end, name, [&](uint16_t index, const char* wanted) {
        return strcmp(functions_[index].name, wanted) < 0;
      });
  if (found == end) return nullptr;
  const Function& function = functions_[*found];
  if (function.hook == nullptr || strcmp(function.name, name) != 0) return nullptr;
  const bool exists = resolve() && function.real->load(std::memory_order_relaxed) != nullptr;
  return exists ? function.hook : nullptr;
}

void* VendorLibrary::hook_for_real(const void* real) const {
  if (real == nullptr) return nullptr;
  for (size_t slot = slot_of(real);; slot = (slot + 1) % kAddressSlots) {
    const uint16_t entry = by_address_[slot].load(std::memory_order_relaxed);
    if (entry == 0) return nullptr;
    const Function& function = functions_[entry - 1];
    if (function.real->load(std::memory_order_relaxed) == real) return function.hook;
  }
}

}  // namespace fracgpu
