// One vendor library as the shim sees it: its soname, and the functions taken from it.
//
// A vendor's table (hooks/<vendor>/functions.inc) becomes an array of `Function`: each has the
// exported name, our hook (null when the shim only calls it) and the slot for the real address.
// The doors, the entry-point getters and the hooks all read the same array.
#pragma once

#include <atomic>
#include <cstddef>
#include <string_view>

namespace fracgpu {

struct Function {
  const char* name;
  void* hook;                // null: not intercepted, only called by the shim
  std::atomic<void*>* real;  // null until the library is loaded, or if it lacks the name
};

class VendorLibrary {
 public:
  constexpr VendorLibrary(std::string_view prefix, std::string_view soname,
                          const Function* functions, size_t count)
      : prefix_(prefix), soname_(soname), functions_(functions), count_(count) {}

  // Fills the slots once the real library is in the process, and pins it there: a slot must not
  // outlive the code it points to. Cheap when done before. False while it is not loaded.
  bool resolve();

  // Whether names of this library begin so; a quick way out for every other look-up.
  bool has_prefix(const char* name) const;

  // The hook for a name, if the loaded library really has the name; else null.
  void* hook_for_name(const char* name);

  // The hook that stands for a real address which the library handed out; else null.
  void* hook_for_real(const void* real) const;

  std::string_view soname() const { return soname_; }

 private:
  std::string_view prefix_;
  std::string_view soname_;
  const Function* functions_;
  size_t count_;
  std::atomic<bool> resolved_{false};
};

// The vendors in the library, for the doors. Defined in hooks/vendors.cc.
VendorLibrary* const* vendor_libraries(size_t& count);

}  // namespace fracgpu
