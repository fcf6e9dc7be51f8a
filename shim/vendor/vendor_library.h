// One vendor library as the shim sees it: its sonames, and the functions taken from it.
//
// A vendor's table (hooks/<vendor>/functions.inc) becomes a `FunctionTable`: each function has the
// exported name, our hook (null if the shim only calls it) and the slot for the real address. The
// dlsym interposer, the entry-point getters and the hooks all read the same table.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "shim/base/elf.h"

namespace fracgpu {

// The names of N functions in one text, each with a NUL behind it: where each begins, and their
// numbers in the order of the names. Computed by the compiler.
template <size_t N>
struct NameIndex {
  std::array<uint16_t, N> begin{};
  std::array<uint16_t, N> sorted{};

  template <size_t Size>
  constexpr explicit NameIndex(const char (&names)[Size]) {
    static_assert(Size <= UINT16_MAX);
    size_t at = 0;
    for (size_t i = 0; i < N; ++i) {
      begin[i] = static_cast<uint16_t>(at);
      sorted[i] = static_cast<uint16_t>(i);
      at += std::string_view(names + at).size() + 1;
    }
    std::sort(sorted.begin(), sorted.end(), [&](uint16_t a, uint16_t b) {
      return std::string_view(names + begin[a]) < std::string_view(names + begin[b]);
    });
  }
};

// A vendor's functions by number. There is no pointer for each function: the loader would write
// such pointers, page by page, at the start of every program.
struct FunctionTable {
  // The size of the hash table from real address to number + 1, which is filled when the library is
  // resolved.
  static constexpr size_t kAddressSlots = 512;

  size_t count;
  const char* names;
  const uint16_t* name_begins;
  const uint16_t* by_name;
  void* (*hook_of)(size_t number);  // null: not intercepted, only called by the shim
  // The functions that the hooks call: null until the library is loaded, or if it lacks the name.
  std::atomic<void*>* real;
  std::atomic<void*>* wrapped;  // the library's own function if `real` has a wrapper; else null
  std::atomic<uint16_t>* by_address;

  const char* name_of(size_t number) const { return names + name_begins[number]; }
  void* real_of(size_t number) const {
    void* const called = real[number].load(std::memory_order_acquire);  // read first; see `wrap`
    void* const own = wrapped[number].load(std::memory_order_relaxed);
    return own != nullptr ? own : called;
  }
};

class VendorLibrary {
 public:
  // One for each generation of the library; the generations differ in nothing that the table lists.
  // The rest are empty. A soname that ends in ".so" stands for every version.
  using Sonames = std::array<std::string_view, 3>;

  // `refusal`: for a library that is also recognised by its exports, whatever its name. It then
  // replaces the functions of every further copy in the process, and returns what an uninitialised
  // library does.
  using Refusal = int (*)();

  constexpr VendorLibrary(std::string_view prefix, const Sonames& sonames,
                          const FunctionTable& functions, Refusal refusal = nullptr)
      : prefix_(prefix), sonames_(sonames), functions_(functions), refusal_(refusal) {}

  // Fills the slots once the real library is in the process, and pins it there: a slot must not
  // outlive the code that it points to. Cheap if done before. False while the library is not
  // loaded. Of several copies it takes the first one loaded, as the dynamic linker does.
  bool resolve() { return resolved_.load(std::memory_order_acquire) || resolve_now(); }

  // Whether the name has this library's prefix. All other look-ups end at once.
  bool has_prefix(const char* name) const;

  // From now on the hooks call `wrapper` instead of the function. The wrapper calls the one in
  // `wrapped`. This stays for good, since threads may be in the wrapper. Does nothing if the
  // library lacks the function.
  void wrap(size_t number, void* wrapper);

  // The hook for a name, if the loaded library really has the name; otherwise null.
  void* hook_for_name(const char* name);

  // The hook that we export under the name, whether or not the library is loaded; otherwise null.
  void* export_for_name(const char* name) const;

  // The hook for a real address that the library handed out; otherwise null. An address in another
  // object is identified by the name under which that object exports it. WSL2's libcuda hands out
  // such addresses, in the driver behind it.
  void* hook_for_real(const void* real);

  // Whether the address is in the resolved library.
  bool contains(const void* address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    return at >= begin_.load(std::memory_order_relaxed) &&
           at < end_.load(std::memory_order_relaxed);
  }

  // Whether a handle of dlopen belongs to a further copy of this library, whose functions the hooks
  // do not call.
  bool is_another(void* handle) const;

  // The function to return for any name of a further copy, if those are refused. Reports the
  // refusal once.
  void* refuse(void* handle);

  // The library looks up its own names, so there is another one behind it that must work.
  void stands_before_another() { stands_before_another_.store(true, std::memory_order_relaxed); }

  // The soname of the loaded library, otherwise the first known one.
  std::string_view soname() const;

 private:
  [[gnu::cold]] bool resolve_now();
  int number_of(const char* name) const;  // -1: not in the table
  elf::Loaded find_library() const;
  bool is_named(std::string_view soname) const;
  bool has_functions(const elf::Loaded& object) const;
  elf::Loaded find_other(void* handle) const;

  std::string_view prefix_;
  Sonames sonames_;
  const FunctionTable& functions_;
  Refusal refusal_;
  std::atomic<bool> resolved_{false};
  std::atomic<uint64_t> absent_among_{UINT64_MAX};  // elf::objects_loaded() when it was absent
  std::atomic<bool> stands_before_another_{false};
  std::atomic<bool> refusal_said_{false};
  std::atomic<uintptr_t> begin_{0}, end_{0};  // its addresses; written before `resolved_`
};

}  // namespace fracgpu
