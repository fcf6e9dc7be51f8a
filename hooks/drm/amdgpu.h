// Watches the requests of AMD's graphics drivers (Mesa's Vulkan, OpenGL and VA-API) to the kernel.
//
// They allocate device memory as GEM buffers through the render node, without HSA: by libdrm, or by
// ioctls of their own. None of their functions is hooked. The library changes the `ioctl` and
// `close` imports of libdrm and of the drivers in memory. A buffer that may be in device memory is
// reserved under the cap before the kernel makes it. If the cap has no room, the driver gets
// ENOMEM. Where the drivers ask the kernel for the memory's size and use, they get the cap's.
//
// A buffer is charged until its process has closed the GEM handle. If it was exported, it stays
// charged as long as the kernel keeps its dma-buf. KFD's count of a process leaves GEM buffers out,
// so they are charged apart from what readings compare with it (Overhead::uncounted). Memory that
// HSA allocates is no GEM buffer of its process, and is charged by HSA's hooks alone.
#pragma once

#include <string_view>

namespace fracgpu::drm {

// Whether a file that is opened by dlopen may be such a driver or libdrm, or load one.
bool may_be_graphics_driver(std::string_view file);

// Watches all of them that are loaded and not watched yet. They must not have made requests before.
void watch_graphics_drivers();

}  // namespace fracgpu::drm
