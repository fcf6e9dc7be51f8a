// NVIDIA's graphics libraries, which serve Vulkan, OpenGL and EGL.
//
// They take device memory from RM themselves, without libcuda. So their ioctls are watched, as
// libcuda's are (kernel.h): whatever a program calls, RM's memory is reserved under the cap before
// RM gives it, and a request that does not fit gets RM's out-of-memory status. The libraries then
// return the API's ordinary error, as on a full device. Where they ask RM for the device's size,
// they get the cap's.
#pragma once

#include <string_view>

namespace fracgpu::cuda {

// Whether a file that is opened by dlopen may be or load such a library.
bool brings_graphics(std::string_view file);

// Watches all of them that are loaded and not watched yet. They must not have made requests before.
void watch_graphics();

}  // namespace fracgpu::cuda
