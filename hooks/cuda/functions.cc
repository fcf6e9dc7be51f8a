// Functions: a program that has got one may launch it, and launches are not hooked. Lazily loaded
// code comes now or with the launch.
#include <algorithm>

#include "hooks/cuda/limits.h"
#include "hooks/cuda/streams.h"
#include "shim/charge/overhead.h"

namespace fracgpu::cuda {
namespace {

// Bytes of a thread; 0 where the driver does not say. Asking loads nothing.
size_t local_bytes(CUfunction function) {
  const OwnCalls own_calls;
  int bytes = 0;
  const bool told = real::cuFuncGetAttribute(&bytes, kLocalBytes, function) == kSuccess;
  return told ? static_cast<size_t>(std::max(bytes, 0)) : 0;
}
size_t local_bytes(CUkernel kernel) {
  const OwnCalls own_calls;
  CUdevice device = 0;
  int bytes = 0;
  const bool told = real::cuCtxGetDevice(&device) == kSuccess &&
                    real::cuKernelGetAttribute(&bytes, kLocalBytes, kernel, device) == kSuccess;
  return told ? static_cast<size_t>(std::max(bytes, 0)) : 0;
}

// Calls `get()`, which writes `count` functions or kernels.
template <typename Handle, typename Get>
CUresult get_functions(const char* api, Handle* handles, unsigned int count, Get get) {
  Hook hook;
  CUresult result = get();
  if (result != kSuccess || !hook.active() || handles == nullptr) return result;
  size_t most = 0;
  for (unsigned int i = 0; i < count; ++i) {
    if (handles[i] != nullptr) most = std::max(most, local_bytes(handles[i]));
  }
  result = prepare_launches(hook.process(), api, most);
  if (result != kSuccess) std::fill_n(handles, count, nullptr);
  return result;
}

}  // namespace

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return get_functions("cuModuleGetFunction", function, 1,
                       [&] { return real::cuModuleGetFunction(function, module, name); });
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int count, CUmodule module) {
  return get_functions("cuModuleEnumerateFunctions", functions, count,
                       [&] { return real::cuModuleEnumerateFunctions(functions, count, module); });
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  return get_functions("cuLibraryGetKernel", kernel, 1,
                       [&] { return real::cuLibraryGetKernel(kernel, library, name); });
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int count, CUlibrary library) {
  return get_functions("cuLibraryEnumerateKernels", kernels, count,
                       [&] { return real::cuLibraryEnumerateKernels(kernels, count, library); });
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  return get_functions("cuKernelGetFunction", function, 1,
                       [&] { return real::cuKernelGetFunction(function, kernel); });
}

}  // namespace fracgpu::cuda
