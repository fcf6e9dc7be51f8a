// Resolves a vendor's functions once; see vendor_library.h.
//
// No lock: threads that race to resolve write the same addresses into the same slots.
#include "shim/vendor/vendor_library.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "shim/base/elf.h"
#include "shim/base/real_dlfcn.h"
#include "shim/base/report.h"

namespace fracgpu {
namespace {

size_t slot_of(const void* real) {
  return reinterpret_cast<uint64_t>(real) * 0x9e3779b97f4a7c15 >> 55;  // the top 9 bits
}

}  // namespace

bool VendorLibrary::is_named(std::string_view soname) const {
  return std::any_of(sonames_.begin(), sonames_.end(), [&](std::string_view known) {
    if (known.empty() || !soname.starts_with(known)) return false;
    const std::string_view rest = soname.substr(known.size());
    return rest.empty() || (known.ends_with(".so") && rest.starts_with('.'));
  });
}

// Wheels and packages rename the vendors' libraries, and newer releases have other numbers; a
// library's exports stay. No release lacks two thirds of the functions that we know, and
// interposers wrap fewer.
bool VendorLibrary::has_functions(const elf::Loaded& object) const {
  if (refusal_ == nullptr || object.contains(reinterpret_cast<const void*>(&slot_of)) ||
      elf::find_symbol(object, functions_.names) == nullptr) {
    return false;
  }
  size_t count = 0;
  for (size_t i = 0; i < functions_.count; ++i) {
    if (elf::find_symbol(object, functions_.name_of(i)) != nullptr) ++count;
  }
  return count > functions_.count / 3;
}

elf::Loaded VendorLibrary::find_library() const {
  const elf::Loaded named =
      elf::find_object([this](const elf::Loaded& object) { return is_named(object.soname); });
  if (named.dynamic != nullptr || refusal_ == nullptr) return named;
  return elf::find_object([this](const elf::Loaded& object) { return has_functions(object); });
}

std::string_view VendorLibrary::soname() const {
  const elf::Loaded loaded = find_library();
  return loaded.soname.empty() ? sonames_[0] : loaded.soname;
}

bool VendorLibrary::resolve_now() {
  // Read before the search: a library that is loaded meanwhile makes it larger.
  const uint64_t objects = elf::objects_loaded();
  if (objects == absent_among_.load(std::memory_order_relaxed)) return false;
  const elf::Loaded loaded = find_library();
  if (loaded.dynamic == nullptr) {
    absent_among_.store(objects, std::memory_order_relaxed);
    return false;
  }
  const auto real_dlopen = real_dl_function<decltype(&::dlopen)>("dlopen");
  if (*loaded.path != '\0' &&
      (real_dlopen == nullptr ||
       real_dlopen(loaded.path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) == nullptr)) {
    return false;
  }
  for (size_t i = 0; i < functions_.count; ++i) {
    void* const real = elf::find_symbol(loaded, functions_.name_of(i));
    // Another thread was faster, and the slot may have a wrapper by now.
    if (resolved_.load(std::memory_order_acquire)) return true;
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
  begin_.store(loaded.begin, std::memory_order_relaxed);
  end_.store(loaded.end, std::memory_order_relaxed);
  resolved_.store(true, std::memory_order_release);
  return true;
}

void VendorLibrary::wrap(size_t number, void* wrapper) {
  if (!resolve()) return;
  void* const real = functions_.real[number].load(std::memory_order_relaxed);
  if (real == nullptr || real == wrapper) return;
  functions_.wrapped[number].store(real, std::memory_order_relaxed);
  functions_.real[number].store(wrapper, std::memory_order_release);
}

bool VendorLibrary::has_prefix(const char* name) const {
  return strncmp(name, prefix_.data(), prefix_.size()) == 0;
}

int VendorLibrary::number_of(const char* name) const {
  const uint16_t* const end = functions_.by_name + functions_.count;
  const uint16_t* const found =
      std::lower_bound(functions_.by_name, end, name, [&](uint16_t number, const char* wanted) {
        return strcmp(functions_.name_of(number), wanted) < 0;
      });
  return found == end || strcmp(functions_.name_of(*found), name) != 0 ? -1 : *found;
}

void* VendorLibrary::export_for_name(const char* name) const {
  const int number = number_of(name);
  return number < 0 ? nullptr : functions_.hook_of(static_cast<size_t>(number));
}

void* VendorLibrary::hook_for_name(const char* name) {
  const int number = number_of(name);
  if (number < 0) return nullptr;
  const auto at = static_cast<size_t>(number);
  void* const hook = functions_.hook_of(at);
  if (hook == nullptr) return nullptr;
  const bool exists = resolve() && functions_.real_of(at) != nullptr;
  return exists ? hook : nullptr;
}

void* VendorLibrary::hook_for_real(const void* real) {
  if (real == nullptr) return nullptr;
  for (size_t slot = slot_of(real);; slot = (slot + 1) % FunctionTable::kAddressSlots) {
    const uint16_t entry = functions_.by_address[slot].load(std::memory_order_acquire);
    if (entry == 0) break;
    if (functions_.real_of(entry - 1) == real) return functions_.hook_of(entry - 1);
  }
  const char* name = nullptr;
  void* start = nullptr;
  const bool elsewhere = !contains(real) && elf::symbol_at(real, name, start) && start == real;
  return elsewhere && has_prefix(name) ? hook_for_name(name) : nullptr;
}

elf::Loaded VendorLibrary::find_other(void* handle) const {
  if (refusal_ == nullptr || handle == RTLD_DEFAULT || handle == RTLD_NEXT ||
      stands_before_another_.load(std::memory_order_relaxed)) {
    return {};
  }
  // A handle of glibc's dlopen is the object's link_map.
  const void* const dynamic = static_cast<const link_map*>(handle)->l_ld;
  if (contains(dynamic)) return {};
  return elf::find_object([&](const elf::Loaded& object) {
    return object.dynamic == dynamic && (is_named(object.soname) || has_functions(object));
  });
}

bool VendorLibrary::is_another(void* handle) const {
  return find_other(handle).dynamic != nullptr;
}

void* VendorLibrary::refuse(void* handle) {
  if (!refusal_said_.exchange(true, std::memory_order_relaxed)) {
    const uintptr_t begin = begin_.load(std::memory_order_relaxed);
    const elf::Loaded first =
        elf::find_object([&](const elf::Loaded& object) { return object.begin == begin; });
    report(Level::error,
           "functions of {} are refused: {} is in the process already, and only the memory of one "
           "such library can be counted; let the program load one of them",
           find_other(handle).path, first.path);
  }
  return reinterpret_cast<void*>(refusal_);
}

}  // namespace fracgpu
