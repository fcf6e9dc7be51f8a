// NVIDIA's libraries beside libcuda that take device memory: those for OpenCL, Vulkan, OpenGL and
// EGL.
//
// They request memory from RM themselves, without libcuda. So their ioctls are watched, as
// libcuda's are (kernel.h): whatever a program calls, RM's memory is reserved under the cap before
// RM gives it, and a request that does not fit gets RM's out-of-memory status. The libraries then
// behave as on a full device. Where they ask RM for the device's size, they get the cap's.
#pragma once

#include <string_view>

namespace fracgpu::cuda {

// Whether a file that is opened by dlopen may be such a library, or load one.
bool may_be_other_library(std::string_view file);

// Watches all of them that are loaded and not watched yet. They must not have made requests before.
void watch_other_libraries();

}  // namespace fracgpu::cuda
