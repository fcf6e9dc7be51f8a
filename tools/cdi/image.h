// The hook that refuses images in which the library would do harm or have no effect.
#pragma once

#include <string>

namespace fracgpu::tools::cdi {

// The container engine runs this before the container starts, with the container's state as JSON
// (OCI runtime specification). Throws if the image cannot be capped. Afterwards this process is in
// the container's root folder.
void check_image(const std::string& state);

}  // namespace fracgpu::tools::cdi
