// Tells one module's image from another by its bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fracgpu::cuda {

// A number for the image that a program hands to cuModuleLoadData or cuModuleLoadFatBinary: a cubin
// (ELF), a fatbin or its wrapper, or PTX as text. 0 where its size cannot be told, or where looking
// at all of it would cost more than a reading of the driver-reported usage (1 MiB).
uint64_t image_key(const void* image);

// The same for a file. 0 where it cannot be looked at.
uint64_t file_key(const char* path);

// What options of the compiler make of `image`: their values are as large as a pointer, or point to
// what they say.
uint64_t key_with_options(uint64_t image, unsigned int count, const int* options, void** values);

}  // namespace fracgpu::cuda
