// A vendor's library as a probe finds it: open, with the ways to one of its functions, and what it
// says of each device's memory. Every function is asked for the size of the memory, which needs no
// context and takes no memory.
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
  // What a function says of a device's memory, in bytes; none: it fails.
  using Total = std::optional<uint64_t>;

  // Loads the first of these names that can be; tells which, or why there is none.
  ProbedLibrary(ProbeTeller& teller, const std::vector<const char*>& names);
  explicit operator bool() const { return handle_ != nullptr; }

  template <typename Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle_, name));
  }

  // Calls a function, 0 being success; false, which is told, when it is missing or fails.
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

  // The ways to the function. `linked` is where the linker bound it.
  void add_lookups(const char* function, void* linked);
  void add(const std::string& lookup, const char* function, void* address);
  // The way by CUDA's or HIP's getter, which have one form; it knows the function as `name`.
  void add_getter(const char* getter, const char* function, const char* name, int version);

  // What the library says of a device's memory.
  void add_total(const std::string& key, uint64_t bytes);

  // Calls what every lookup found for the first device's memory, and tells all.
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

// cuDeviceTotalMem or hipDeviceTotalMem at this address, of a device by its number.
ProbedLibrary::Total total_of_number(void* address, int device);

// "13.0" of 13000 (CUDA: 1000 and 10).
std::string version_text(int number, int major_unit, int minor_unit);

}  // namespace fracgpu::tools
