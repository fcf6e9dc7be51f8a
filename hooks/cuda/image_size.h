// What the driver takes on a device for a module, as far as its image tells.
#pragma once

#include <cstdint>

#include "shim/base/byte_source.h"
#include "shim/process/process.h"

namespace fracgpu::cuda {

// How the driver loads (CUmoduleLoadingMode): all at once, or code when it is first needed.
enum class Loading { eager, lazy };
Loading loading(const Process& process);

// In bytes: the variables and the code of a cubin (ELF), of the largest variant in a fatbin (or its
// wrapper), or what PTX will become, by an estimate; without the code where that comes later. 0
// where the image does not tell. The image is what a program hands to cuModuleLoadData, or the path
// that it hands to cuModuleLoad. Both are read by system calls, so that an image which lies about
// its size does no harm.
uint64_t image_bytes(const void* image, Loading loading);
uint64_t file_bytes(const char* path, Loading loading);

// The same of an image that the source holds, without a wrapper.
uint64_t bytes_of_image(const ByteSource& image, Loading loading);

// What PTX makes of itself: its global variables, and for its code the length of the text, since an
// instruction of 16 bytes is written in more letters than that. 0 for what is no PTX.
uint64_t bytes_of_ptx(const ByteSource& text, Loading loading);

}  // namespace fracgpu::cuda
