// Reads the version's text; see driver_version.h.
#include "hooks/nvml/driver_version.h"

#include <stdlib.h>

#include "hooks/nvml/library.h"

namespace fracgpu::nvml {

DriverVersion driver_version() {
  char text[80];
  DriverVersion version;
  if (real::nvmlSystemGetDriverVersion(text, sizeof text) != kSuccess) return version;
  char* at = text;
  for (unsigned long* part : {&version.major, &version.minor, &version.patch}) {
    *part = strtoul(at, &at, 10);
    if (*at != '.') break;
    ++at;
  }
  return version;
}

}  // namespace fracgpu::nvml
