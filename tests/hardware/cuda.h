// NVIDIA's driver as the probes reach it: opened by name, as programs do, so that the library is
// between them where it is preloaded.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "hooks/cuda/abi.h"
#include "tests/hardware/probe.h"

namespace hardware {

using namespace fracgpu::cuda;

// Null when there is no libcuda.so.1 or no such function in it.
void* cuda_function(const char* name);

// "cuMemAlloc_v2: out of memory (2)"
std::string cuda_failure(const char* name, int rc);

// The driver's result. Throws Unmeasured when the driver has no such function. The arguments must
// have exactly the types of the prototype.
template <typename... Arguments>
int try_cuda(const char* name, Arguments... arguments) {
  void* const found = cuda_function(name);
  if (found == nullptr) throw Unmeasured(std::string("the driver has no ") + name);
  return reinterpret_cast<int (*)(Arguments...)>(found)(arguments...);
}

// The same; throws Unmeasured when it fails.
template <typename... Arguments>
void cuda(const char* name, Arguments... arguments) {
  if (const int rc = try_cuda(name, arguments...)) throw Unmeasured(cuda_failure(name, rc));
}

// cuInit, the first device's primary context, made current in the calling thread.
CUcontext begin_cuda();

CUmemAllocationProp device_memory(bool exported = false);
CUmemPoolProps pool_memory(bool exported = false);
uint64_t granularity();

// Memory on the first device, of CUDA's own count.
struct CudaMemory {
  size_t free = 0, total = 0;
};
CudaMemory cuda_memory();

// A module of PTX without its first lines.
int try_load_ptx(const std::string& body, CUmodule* module);
CUmodule load_ptx(const std::string& body);
// A kernel of one thread in `stream`, without parameters but this number.
void launch(CUmodule module, const char* name, unsigned long long parameter, CUstream stream,
            unsigned blocks = 1);

}  // namespace hardware
