// Functions: a program that has got a function may launch it, and launches are not hooked. Lazily
// loaded code is loaded by these calls or by the launch.
#include <algorithm>

#include "hooks/cuda/limits.h"
#include "hooks/cuda/overhead_call.h"
#include "hooks/cuda/streams.h"
#include "shim/charge/overhead.h"

namespace fracgpu::cuda {
namespace {

// Local memory of one thread in bytes; 0 if the driver does not report it. The query loads nothing.
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

// Calls `get()`, which writes as many functions or kernels as `written()` then returns.
template <typename Handle, typename Get, typename Written>
CUresult get_functions(const char* api, Handle* handles, Get get, Written written) {
  Hook hook;
  Context context;
  const bool is_watched = hook.active() && current_context(hook.process(), context) &&
                          kernel_calls_are_watched(context.device_index);
  CUresult result =
      is_watched ? take_as_needed(hook.process(), context.device_index, api, get) : get();
  if (result != kSuccess || !hook.active() || handles == nullptr) return result;
  if (is_watched && !prepares_launches(hook.process(), context)) return result;
  const unsigned int count = written();
  size_t most = 0;
  for (unsigned int i = 0; i < count; ++i) {
    if (handles[i] != nullptr) most = std::max(most, local_bytes(handles[i]));
  }
  result = prepare_launches(hook.process(), api, most);
  if (result != kSuccess) std::fill_n(handles, count, nullptr);
  return result;
}

template <typename Handle, typename Get>
CUresult get_function(const char* api, Handle* handle, Get get) {
  return get_functions(api, handle, get, [] { return 1U; });
}

// The number of entries that the driver writes to an array with `room` entries. `ask(&count)`
// returns how many exist. The driver leaves the other entries unchanged, so they may not be
// handles.
template <typename Ask>
unsigned int written_of(unsigned int room, Ask ask) {
  const OwnCalls own_calls;
  unsigned int count = 0;
  return ask(&count) == kSuccess ? std::min(room, count) : 0;
}

}  // namespace

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return get_function("cuModuleGetFunction", function,
                      [&] { return real::cuModuleGetFunction(function, module, name); });
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int count, CUmodule module) {
  return get_functions(
      "cuModuleEnumerateFunctions", functions,
      [&] { return real::cuModuleEnumerateFunctions(functions, count, module); },
      [&] {
        return written_of(count, [&](unsigned int* there) {
          return real::cuModuleGetFunctionCount(there, module);
        });
      });
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  return get_function("cuLibraryGetKernel", kernel,
                      [&] { return real::cuLibraryGetKernel(kernel, library, name); });
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int count, CUlibrary library) {
  return get_functions(
      "cuLibraryEnumerateKernels", kernels,
      [&] { return real::cuLibraryEnumerateKernels(kernels, count, library); },
      [&] {
        return written_of(count, [&](unsigned int* there) {
          return real::cuLibraryGetKernelCount(there, library);
        });
      });
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  return get_function("cuKernelGetFunction", function,
                      [&] { return real::cuKernelGetFunction(function, kernel); });
}

}  // namespace fracgpu::cuda
