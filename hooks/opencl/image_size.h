// The size of images in device memory.
#pragma once

#include "hooks/opencl/abi.h"

namespace fracgpu::opencl {

// The most bytes that NVIDIA's driver takes for an image, before they are rounded to its pages.
uint64_t image_bytes(const cl_image_format& format, const cl_image_desc& description);

}  // namespace fracgpu::opencl
