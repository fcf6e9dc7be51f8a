// The device memory that the driver takes for a module, as far as the image reveals it.
#pragma once

#include <cstdint>

#include "shim/base/byte_source.h"
#include "shim/process/process.h"

namespace fracgpu::cuda {

// How the driver loads code (CUmoduleLoadingMode): everything at once, or each part when it is
// first needed.
enum class Loading { eager, lazy };
Loading loading(const Process& process);

// In bytes: the variables and code of a cubin (ELF), of the largest variant in a fatbin (or its
// wrapper), or an estimate for compiled PTX. Lazily loaded code does not count. 0 if the image does
// not reveal its size. The image is what a program passes to cuModuleLoadData, or the path that it
// passes to cuModuleLoad. Both are read by system calls, so that an image with a wrong size does no
// harm.
uint64_t image_bytes(const void* image, Loading loading);
uint64_t file_bytes(const char* path, Loading loading);

// The same for an image without a wrapper in a byte source.
uint64_t bytes_of_image(const ByteSource& image, Loading loading);

// The size of compiled PTX: its global variables, and the length of the text as an estimate of its
// code. An instruction of 16 bytes is written in more than 16 letters. 0 if the text is not PTX.
uint64_t bytes_of_ptx(const ByteSource& text, Loading loading);

}  // namespace fracgpu::cuda
