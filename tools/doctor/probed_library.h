// A vendor's library in a probe: the open library, the lookups of one of its functions, and the
// memory that it reports for each device. Every function is asked for the size of the memory, which
// needs no context and takes no memory.
#pragma once

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/probe.h"

namespace fracgpu::tools {

class ProbedLibrary {
 public:
  // A device's memory that a function reports, in bytes; none if it fails.
  using Total = std::optional<uint64_t>;

  // Loads the first of these names that works. Reports its name, or why none works.
  ProbedLibrary(ProbeTeller& teller, const std::vector<const char*>& names);
  explicit operator bool() const { return handle_ != nullptr; }

  template <typename Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle_, name));
  }

  // Calls a function whose result 0 means success. If it is missing or fails, reports that and
  // returns false.
  template <typename... Parameters>
  bool call(const char* name, Parameters... arguments) const {
    teller_.step(name);
    const auto function = find<int(Parameters...)>(name);
    const int result = function == nullptr ? -1 : function(arguments...);
    if (result == 0) return true;
    teller_.tell("error", function == nullptr ? fmt::format("there is no {}", name)
                                              : fmt::format("{} failed with {}", name, result));
    return false;
  }

  // Adds the lookups of the function. `linked` is the address that the linker bound.
  void add_lookups(const char* function, void* linked);
  void add(const std::string& lookup, const char* function, void* address);
  // Adds the lookup by CUDA's or HIP's getter, which have the same form. The getter knows the
  // function as `name`.
  void add_getter(const char* getter, const char* function, const char* name, int version);

  // Adds the memory that the library reports for a device.
  void add_total(const std::string& key, uint64_t bytes);

  // Calls the result of every lookup for the first device's memory, and reports everything.
  void tell(const std::string& version, const std::function<Total(void*)>& ask);

 private:
  struct Lookup {
    std::string name;
    const char* function;
    void* address;
  };

  std::vector<Total> ask_all(const std::function<Total(void*)>& ask);

  ProbeTeller& teller_;
  void* handle_ = nullptr;
  std::vector<Lookup> lookups_{};
  Json totals_ = Json::array();
};

// Calls cuDeviceTotalMem or hipDeviceTotalMem at this address, for a device number.
ProbedLibrary::Total total_of_number(void* address, int device);

// "13.0" for 13000 (CUDA: 1000 and 10).
std::string version_text(int number, int major_unit, int minor_unit);

}  // namespace fracgpu::tools
