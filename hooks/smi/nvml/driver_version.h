// The driver's version. The layout and the meaning (list_meaning.h) of NVML's process lists depend
// on it.
#pragma once

#include <stdlib.h>

#include <compare>
#include <initializer_list>

namespace fracgpu::nvml {

struct DriverVersion {
  unsigned long major = 0, minor = 0, patch = 0;  // all 0: not known

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 means the comparison with zero inside.
  auto operator<=>(const DriverVersion&) const = default;
  bool known() const { return major != 0; }
};

// Parses a version such as "535.161.08".
inline DriverVersion version_in(const char* text) {
  DriverVersion version;
  char* at = const_cast<char*>(text);
  for (unsigned long* part : {&version.major, &version.minor, &version.patch}) {
    *part = strtoul(at, &at, 10);
    if (*at != '.') break;
    ++at;
  }
  return version;
}

// Queries NVML, which must be initialized, until it answers once: no process outlives its driver.
DriverVersion driver_version();

// Whether the third generation of the lists has the entries that nvml.h describes. Some drivers in
// between fill larger ones. Which ones exactly is not known.
constexpr bool third_lists_as_documented(const DriverVersion& version) {
  return version < DriverVersion{535, 43, 0} || version >= DriverVersion{535, 104, 0};
}

}  // namespace fracgpu::nvml
