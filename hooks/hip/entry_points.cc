// How programs find HIP's functions by name. The runtime chooses the function, and the hook returns
// our function for that address. So versions are right by construction.
#include "hooks/hip/hook.h"

namespace fracgpu::hip {
namespace {

void route(Hook& hook, hipError_t result, void** function) {
  if (result != kSuccess || !hook.active() || function == nullptr) return;
  if (void* replacement = runtime_library.hook_for_real(*function); replacement != nullptr) {
    *function = replacement;
  }
}

}  // namespace

hipError_t hipGetProcAddress(const char* symbol, void** function, int version, uint64_t flags,
                             void* status) {
  Hook hook("hipGetProcAddress");
  const hipError_t result = real::hipGetProcAddress(symbol, function, version, flags, status);
  route(hook, result, function);
  return result;
}

hipError_t hipGetProcAddress_spt(const char* symbol, void** function, int version, uint64_t flags,
                                 void* status) {
  Hook hook("hipGetProcAddress");
  const hipError_t result = real::hipGetProcAddress_spt(symbol, function, version, flags, status);
  route(hook, result, function);
  return result;
}

hipError_t hipGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                  void* status) {
  Hook hook("hipGetDriverEntryPoint");
  const hipError_t result = real::hipGetDriverEntryPoint(symbol, function, flags, status);
  route(hook, result, function);
  return result;
}

hipError_t hipGetDriverEntryPoint_spt(const char* symbol, void** function, unsigned long long flags,
                                      void* status) {
  Hook hook("hipGetDriverEntryPoint");
  const hipError_t result = real::hipGetDriverEntryPoint_spt(symbol, function, flags, status);
  route(hook, result, function);
  return result;
}

}  // namespace fracgpu::hip
