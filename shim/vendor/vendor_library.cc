// Resolves a vendor's functions once; see vendor_library.h.
//
// No lock: threads that race to resolve write the same addresses into the same slots.
#include "shim/vendor/vendor_library.h"

#include <dlfcn.h>
#include <string.h>

#include "shim/base/elf.h"
#include "shim/base/real_dlfcn.h"

namespace fracgpu {
namespace {

size_t slot_of(const void* real) {
  return reinterpret_cast<uint64_t>(real) * 0x9e3779b97f4a7c15 >> 55;  // the top 9 bits
}

}  // namespace

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
  for (size_t i = 0; i < functions_.count; ++i) {
    void* const real = elf::find_symbol(loaded, functions_.name_of(i));
    functions_.real[i].store(real, std::memory_order_relaxed);
    if (real == nullptr) continue;
    const auto entry = static_cast<uint16_t>(i + 1);
    for (size_t slot = slot_of(real);; slot = (slot + 1) % FunctionTable::kAddressSlots) {
      uint16_t known = 0;
      if (functions_.by_address[slot].compare_exchange_strong(known, entry) || known == entry) {
        break;
      }
    }
  }
  const elf::Range range = elf::range_of(loaded);
  begin_.store(range.begin, std::memory_order_relaxed);
  end_.store(range.end, std::memory_order_relaxed);
  resolved_.store(true, std::memory_order_release);
  return true;
}

bool VendorLibrary::has_prefix(const char* name) const {
  return strncmp(name, prefix_.data(), prefix_.size()) == 0;
}

void* VendorLibrary::hook_for_name(const char* name) {
  const uint16_t* const end = functions_.by_name + functions_.count;
  const uint16_t* const found =
      std::lower_bound(functions_.by_name, end, name, [&](uint16_t number, const char* wanted) {
        return strcmp(functions_.name_of(number), wanted) < 0;
      });
  if (found == end || strcmp(functions_.name_of(*found), name) != 0) return nullptr;
  void* const hook = functions_.hook_of(*found);
  if (hook == nullptr) return nullptr;
  const bool exists = resolve() && functions_.real_of(*found) != nullptr;
  return exists ? hook : nullptr;
}

void* VendorLibrary::hook_for_real(const void* real) {
  if (real == nullptr) return nullptr;
  for (size_t slot = slot_of(real);; slot = (slot + 1) % FunctionTable::kAddressSlots) {
    const uint16_t entry = functions_.by_address[slot].load(std::memory_order_relaxed);
    if (entry == 0) break;
    if (functions_.real_of(entry - 1) == real) return functions_.hook_of(entry - 1);
  }
  const char* name = nullptr;
  void* start = nullptr;
  const bool elsewhere = !contains(real) && elf::symbol_at(real, name, start) && start == real;
  return elsewhere && has_prefix(name) ? hook_for_name(name) : nullptr;
}

}  // namespace fracgpu
