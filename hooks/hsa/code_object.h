// What a code object takes on a device.
#pragma once

#include "shim/base/byte_source.h"

namespace fracgpu::hsa {

// In bytes, before the kernel rounds them up to pages. 0 where it cannot be told: the bytes are no
// code object, or one of the form that compilers left behind before 2017.
uint64_t code_object_bytes(const ByteSource& image);

}  // namespace fracgpu::hsa
