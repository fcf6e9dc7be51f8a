// Reads the version; see driver_version.h.
#include "hooks/smi/nvml/driver_version.h"

#include "hooks/smi/nvml/library.h"

namespace fracgpu::nvml {

DriverVersion driver_version() {
  char text[80];
  const bool known = real::nvmlSystemGetDriverVersion(text, sizeof text) == kSuccess;
  return known ? version_in(text) : DriverVersion();
}

}  // namespace fracgpu::nvml
