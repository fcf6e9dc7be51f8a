// The primary context of each device: counted by retain and release, one cost however often it is
// retained. Its handle stays the same for the life of the process, also across the last release and
// a reset. A reset frees everything at once but leaves the count alone, as documented by the
// vendor; the next retain brings it back to life.
#include "sim/cuda/driver.h"

using sim::Context;
using sim::Driver;
using sim::Guard;

namespace {

CUresult release(CUdevice dev) {
  Driver& driver = Driver::get();
  if (!driver.valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const Guard guard(driver.lock());
  Context& context = driver.primary(dev);
  if (context.references == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--context.references == 0) driver.deactivate(&context);
  return CUDA_SUCCESS;
}

CUresult reset(CUdevice dev) {
  Driver& driver = Driver::get();
  if (!driver.valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const Guard guard(driver.lock());
  driver.deactivate(&driver.primary(dev));
  return CUDA_SUCCESS;
}

CUresult set_flags(CUdevice dev, unsigned flags, bool even_active) {
  Driver& driver = Driver::get();
  if (!driver.valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const Guard guard(driver.lock());
  Context& context = driver.primary(dev);
  if (context.alive && !even_active) return CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
  context.flags = flags;
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice dev) {
  SIM_CALL(cuDevicePrimaryCtxRetain);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = Driver::get();
  if (!driver.valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const Guard guard(driver.lock());
  Context& context = driver.primary(dev);
  if (!context.alive) {
    if (const CUresult result = driver.activate(&context)) return result;
  }
  ++context.references;
  *out = sim::handle(&context);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
  SIM_CALL(cuDevicePrimaryCtxRelease);
  return release(dev);
}
SIM_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  SIM_CALL(cuDevicePrimaryCtxRelease_v2);
  return release(dev);
}

SIM_API CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
  SIM_CALL(cuDevicePrimaryCtxReset);
  return reset(dev);
}
SIM_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  SIM_CALL(cuDevicePrimaryCtxReset_v2);
  return reset(dev);
}

SIM_API CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned* flags, int* active) {
  SIM_CALL(cuDevicePrimaryCtxGetState);
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = Driver::get();
  if (!driver.valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const Guard guard(driver.lock());
  *flags = driver.primary(dev).flags;
  *active = driver.primary(dev).alive ? 1 : 0;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned flags) {
  SIM_CALL(cuDevicePrimaryCtxSetFlags);
  return set_flags(dev, flags, false);
}
SIM_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned flags) {
  SIM_CALL(cuDevicePrimaryCtxSetFlags_v2);
  return set_flags(dev, flags, true);
}
