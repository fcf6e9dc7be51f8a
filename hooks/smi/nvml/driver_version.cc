// Reads the version; see driver_version.h.
#include "hooks/smi/nvml/driver_version.h"

#include "hooks/smi/nvml/library.h"

namespace fracgpu::nvml {

DriverVersion driver_version() {
  char text[80];
  const bool told = real::nvmlSystemGetDriverVersion(text, sizeof text) == kSuccess;
  return told ? version_in(text) : DriverVersion();
}

}  // namespace fracgpu::nvml
