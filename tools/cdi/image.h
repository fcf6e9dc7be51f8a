// The hook that refuses images in which the library would do harm or nothing.
#pragma once

#include <string>

namespace fracgpu::tools::cdi {

// Called by the container engine before the container starts, with the container's state as JSON
// (OCI runtime specification). Throws where the image cannot be capped. Afterwards this process
// lies in the container's root folder.
void check_image(const std::string& state);

}  // namespace fracgpu::tools::cdi
