// Identifies a module's image by its bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fracgpu::cuda {

// A number that identifies an image passed to cuModuleLoadData or cuModuleLoadFatBinary: a cubin
// (ELF), a fatbin or its wrapper, or PTX as text. 0 if its size cannot be determined or exceeds 1
// MiB: hashing a much larger image would cost more than a reading of the driver-reported usage.
uint64_t image_key(const void* image);

// The same for a file. 0 if the file cannot be read.
uint64_t file_key(const char* path);

// Combines the key of `image` with the compiler options. An option's value is either as large as a
// pointer or a pointer to the value.
uint64_t key_with_options(uint64_t image, unsigned int count, const int* options, void** values);

}  // namespace fracgpu::cuda
