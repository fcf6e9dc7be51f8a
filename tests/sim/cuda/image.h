// What of a module's image lies on the device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sim {

// Bytes, of an image as cuModuleLoadData takes it: the allocated sections of a cubin, except for
// what is a block's or a thread's own; the same of the first one in a fatbin, or the size that
// compressed code has; the global arrays of PTX. 0 for anything else. Without code, if that is
// loaded lazily.
uint64_t bytes_on_device(const void* image, bool lazy);

// Whether a file is a cubin or a fatbin.
bool is_image(const char* bytes, size_t size);

}  // namespace sim
