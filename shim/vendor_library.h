// One vendor library as the shim sees it: its sonames, and the functions taken from it.
//
// A vendor's table (hooks/<vendor>/functions.inc) becomes an array of `Function`: each has the
// exported name, our hook (null when the shim only calls it) and the slot for the real address.
// The doors, the entry-point getters and the hooks all read the same array.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fracgpu {

struct Function {
  const char* name;
  void* hook;                // null: not intercepted, only called by the shim
  std::atomic<void*>* real;  // null until the library is loaded, or if it lacks the name
};

// The indices of `names` in the order of the names, computed by the compiler.
template <size_t N>
constexpr std::array<uint16_t, N> order_of(const std::array<std::string_view, N>& names) {
  std::array<uint16_t, N> order{};
  for (size_t i = 0; i < N; ++i) order[i] = static_cast<uint16_t>(i);
  std::sort(order.begin(), order.end(),
            [&](uint16_t a, uint16_t b) { return names[a] < names[b]; });
  return order;
}

class VendorLibrary {
 public:
  // One for each generation of the library that differs in nothing that the table says; the rest
  // are empty. One that ends in ".so" stands for every version.
  using Sonames = std::array<std::string_view, 3>;

  // `by_name` is the order_of the functions' names.
  template <size_t N>
  constexpr VendorLibrary(std::string_view prefix, const Sonames& sonames,
                          const Function (&functions)[N], const std::array<uint16_t, N>& by_name)
      : prefix_(prefix),
        sonames_(sonames),
        functions_(functions),
        by_name_(by_name.data()),
        count_(N) {
    static_assert(N <= kAddressSlots / 2);
  }

  // Fills the slots once the real library is in the process, and pins it there: a slot must not
  // outlive the code it points to. Cheap when done before. False while it is not loaded.
  bool resolve() { return resolved_.load(std::memory_order_acquire) || resolve_now(); }

  // Whether names of this library begin so; a quick way out for every other look-up.
  bool has_prefix(const char* name) const;

  // The hook for a name, if the loaded library really has the name; else null.
  void* hook_for_name(const char* name);

  // The hook that stands for a real address which the library handed out; else null.
  void* hook_for_real(const void* real) const;

  // Of the first generation that is loaded, or else of the first.
  std::string_view soname() const;

 private:
  bool resolve_now();

  std::string_view prefix_;
  Sonames sonames_;
  const Function* functions_;
  const uint16_t* by_name_;
  size_t count_;
  std::atomic<bool> resolved_{false};

  // Hash table from real address to index + 1, filled when the library is resolved.
  static constexpr size_t kAddressSlots = 512;
  static size_t slot_of(const void* real);
  std::atomic<uint16_t> by_address_[kAddressSlots] = {};
};

// The vendors in the library, for the doors. Defined in hooks/vendors.cc.
VendorLibrary* const* vendor_libraries(size_t& count);

}  // namespace fracgpu
