// The device memory that a code object takes.
#pragma once

#include "shim/base/byte_source.h"

namespace fracgpu::hsa {

// In bytes, before the kernel rounds them up to pages. 0 if the size cannot be determined: the
// image is not a code object, or it has the format that compilers used before 2017.
uint64_t code_object_bytes(const ByteSource& image);

}  // namespace fracgpu::hsa
