#include "tests/hardware/cuda.h"

#include <dlfcn.h>

namespace hardware {

void* cuda_function(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return library != nullptr ? dlsym(library, name) : nullptr;
}

std::string cuda_failure(const char* name, int rc) {
  const char* text = nullptr;
  if (void* const namer = cuda_function("cuGetErrorString")) {
    reinterpret_cast<int (*)(int, const char**)>(namer)(rc, &text);
  }
  return std::string(name) + ": " + (text != nullptr ? text : "unknown error") + " (" +
         std::to_string(rc) + ")";
}

CUcontext begin_cuda() {
  CUcontext context = nullptr;
  cuda("cuInit", 0u);
  cuda("cuDevicePrimaryCtxRetain", &context, CUdevice{0});
  cuda("cuCtxSetCurrent", context);
  return context;
}

CUmemAllocationProp device_memory(bool exported) {
  CUmemAllocationProp properties = {};
  properties.type = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
  properties.requestedHandleTypes = exported ? kPosixDescriptor : 0;
  properties.location = {.type = kLocationDevice, .id = 0};
  return properties;
}

CUmemPoolProps pool_memory(bool exported) {
  CUmemPoolProps properties = {};
  properties.allocType = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
  properties.handleTypes = exported ? kPosixDescriptor : 0;
  properties.location = {.type = kLocationDevice, .id = 0};
  return properties;
}

uint64_t granularity() {
  const CUmemAllocationProp properties = device_memory();
  const CUmemAllocationProp* wanted = &properties;
  size_t bytes = 0;
  cuda("cuMemGetAllocationGranularity", &bytes, wanted, 0);  // the smallest
  if (bytes == 0) throw Unmeasured("cuMemGetAllocationGranularity says 0");
  return bytes;
}

CudaMemory cuda_memory() {
  CudaMemory memory;
  cuda("cuMemGetInfo_v2", &memory.free, &memory.total);
  return memory;
}

int try_load_ptx(const std::string& body, CUmodule* module) {
  // The oldest target that a driver still takes: its compiler makes code of it for any newer GPU.
  static constexpr const char* kTargets[] = {".version 6.0\n.target sm_50\n",
                                             ".version 6.3\n.target sm_75\n",
                                             ".version 7.0\n.target sm_80\n"};
  int rc = 0;
  for (const char* target : kTargets) {
    const std::string text = std::string(target) + ".address_size 64\n" + body;
    const void* image = text.c_str();
    rc = try_cuda("cuModuleLoadData", module, image);
    if (rc == 0 || rc == kOutOfMemory) break;
  }
  return rc;
}

CUmodule load_ptx(const std::string& body) {
  CUmodule module = nullptr;
  const int rc = try_load_ptx(body, &module);
  if (rc != 0) throw Unmeasured(cuda_failure("cuModuleLoadData", rc));
  return module;
}

void launch(CUmodule module, const char* name, unsigned long long parameter, CUstream stream,
            unsigned blocks) {
  void* kernel = nullptr;
  cuda("cuModuleGetFunction", &kernel, module, name);
  void* parameters[] = {&parameter};
  void** const all = parameters;
  void** const extra = nullptr;
  cuda("cuLaunchKernel", kernel, blocks, 1u, 1u, 1u, 1u, 1u, 0u, stream, all, extra);
}

}  // namespace hardware
