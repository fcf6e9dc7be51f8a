// cuGetProcAddress: the driver chooses the function, and the hook returns our function for it.
//
// The driver knows which version and stream variant of a function a name, a version number and
// flags mean. Choosing the hook by the address that the driver returns is right by construction.
// Addresses without a hook, probes with an empty name, and errors pass unchanged.
#include "hooks/cuda/hook.h"

namespace fracgpu::cuda {
namespace {

void route(const Hook& hook, CUresult result, void** function) {
  if (result != kSuccess || !hook.active() || function == nullptr) return;
  if (void* replacement = driver_library.hook_for_real(*function); replacement != nullptr) {
    *function = replacement;
  }
}

}  // namespace

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t flags,
                             int* status) {
  Hook hook;
  const CUresult result = real::cuGetProcAddress_v2(symbol, function, version, flags, status);
  route(hook, result, function);
  return result;
}

CUresult cuGetProcAddress(const char* symbol, void** function, int version, uint64_t flags) {
  Hook hook;
  const CUresult result = real::cuGetProcAddress(symbol, function, version, flags);
  route(hook, result, function);
  return result;
}

}  // namespace fracgpu::cuda
