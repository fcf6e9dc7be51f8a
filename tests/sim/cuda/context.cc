// Contexts that programs make themselves, and the per-thread stack of current ones.
// All creation variants end in one function; what their extra parameters ask for is ignored. A
// context destroyed while current to another thread stays there and answers CONTEXT_IS_DESTROYED.
#include "sim/cuda/capture_table.h"
#include "sim/cuda/driver.h"

using sim::Context;
using sim::Driver;
using sim::Guard;

namespace {

CUresult create(CUcontext* out, unsigned flags, CUdevice dev, unsigned api_version) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = Driver::get();
  if (!driver.valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  Context* context = nullptr;
  const Guard guard(driver.lock());
  if (const CUresult result = driver.make_context(dev, flags, &context)) return result;
  context->api_version = api_version;
  *out = sim::handle(context);
  return driver.push(context);
}

CUresult destroy(CUcontext given) {
  Context* context = sim::context_of(given);
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  if (!driver.known(context) || context->primary || context->parent != nullptr)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  driver.deactivate(context);
  context->references = 0;
  if (sim::current() == context) {
    driver.pop();
  } else {
    driver.recycle(context);
  }
  return CUDA_SUCCESS;
}

CUresult push_known(CUcontext given) {
  Context* context = sim::context_of(given);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  return driver.known(context) ? driver.push(context) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult pop(CUcontext* out) {
  Context* const context = sim::current();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (out != nullptr) *out = sim::handle(context);
  const Guard guard(Driver::get().lock());
  Driver::get().pop();
  return CUDA_SUCCESS;
}

CUresult synchronise(Context* context) {
  if (const CUresult refused = sim::usable(context)) return refused;
  Driver& driver = Driver::get();
  sim::Reach reach;
  {
    const Guard guard(driver.lock());
    if (const CUresult refused = sim::refused_in_capture(*context)) return refused;
    reach = driver.streams.reach(*context);
  }
  sim::wait_until(reach.busy_until);
  const Guard guard(driver.lock());
  driver.pools.synchronised(reach);
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API CUresult cuCtxCreate(CUcontext* out, unsigned flags, CUdevice dev) {
  SIM_CALL(cuCtxCreate);
  return create(out, flags, dev, 2000);
}
SIM_API CUresult cuCtxCreate_v2(CUcontext* out, unsigned flags, CUdevice dev) {
  SIM_CALL(cuCtxCreate_v2);
  return create(out, flags, dev, 3020);
}
SIM_API CUresult cuCtxCreate_v3(CUcontext* out, void* affinity, int count, unsigned flags,
                                CUdevice dev) {
  SIM_CALL(cuCtxCreate_v3);
  if ((affinity == nullptr) != (count == 0)) return CUDA_ERROR_INVALID_VALUE;
  return create(out, flags, dev, 3020);
}
SIM_API CUresult cuCtxCreate_v4(CUcontext* out, void* /*parameters*/, unsigned flags,
                                CUdevice dev) {
  SIM_CALL(cuCtxCreate_v4);
  return create(out, flags, dev, 3020);
}

SIM_API CUresult cuCtxDestroy(CUcontext context) {
  SIM_CALL(cuCtxDestroy);
  return destroy(context);
}
SIM_API CUresult cuCtxDestroy_v2(CUcontext context) {
  SIM_CALL(cuCtxDestroy_v2);
  return destroy(context);
}

SIM_API CUresult cuCtxAttach(CUcontext* out, unsigned flags) {
  SIM_CALL(cuCtxAttach);
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  SIM_CONTEXT(context);
  const Guard guard(Driver::get().lock());
  ++context->references;
  *out = sim::handle(context);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxDetach(CUcontext given) {
  SIM_CALL(cuCtxDetach);
  Context* context = sim::context_of(given);
  {
    const Guard guard(Driver::get().lock());
    if (context == nullptr || !Driver::get().known(context) || context->primary)
      return CUDA_ERROR_INVALID_CONTEXT;
    if (context->references > 1) {
      --context->references;
      return CUDA_SUCCESS;
    }
  }
  return destroy(given);
}

SIM_API CUresult cuCtxPushCurrent(CUcontext context) {
  SIM_CALL(cuCtxPushCurrent);
  return push_known(context);
}
SIM_API CUresult cuCtxPushCurrent_v2(CUcontext context) {
  SIM_CALL(cuCtxPushCurrent_v2);
  return push_known(context);
}
SIM_API CUresult cuCtxPopCurrent(CUcontext* out) {
  SIM_CALL(cuCtxPopCurrent);
  return pop(out);
}
SIM_API CUresult cuCtxPopCurrent_v2(CUcontext* out) {
  SIM_CALL(cuCtxPopCurrent_v2);
  return pop(out);
}

SIM_API CUresult cuCtxSetCurrent(CUcontext given) {
  SIM_CALL(cuCtxSetCurrent);
  Context* context = sim::context_of(given);
  if (sim::current() == context) return CUDA_SUCCESS;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  if (context != nullptr && !driver.known(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (sim::current() != nullptr) driver.pop();
  return context != nullptr ? driver.push(context) : CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetCurrent(CUcontext* out) {
  SIM_CALL(cuCtxGetCurrent);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = sim::handle(sim::current());
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetDevice(CUdevice* out) {
  SIM_CALL(cuCtxGetDevice);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_CONTEXT(context);
  *out = context->ordinal;
  return CUDA_SUCCESS;
}
SIM_API CUresult cuCtxGetDevice_v2(CUdevice* out, CUcontext given) {
  SIM_CALL(cuCtxGetDevice_v2);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = given != nullptr ? sim::context_of(given) : sim::current();
  if (const CUresult refused = sim::usable(context)) return refused;
  *out = context->ordinal;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxSynchronize() {
  SIM_CALL(cuCtxSynchronize);
  return synchronise(sim::current());
}
SIM_API CUresult cuCtxSynchronize_v2(CUcontext given) {
  SIM_CALL(cuCtxSynchronize_v2);
  return synchronise(given != nullptr ? sim::context_of(given) : sim::current());
}

SIM_API CUresult cuCtxGetApiVersion(CUcontext given, unsigned* version) {
  SIM_CALL(cuCtxGetApiVersion);
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = given != nullptr ? sim::context_of(given) : sim::current();
  if (const CUresult refused = sim::usable(context)) return refused;
  *version = context->api_version;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetId(CUcontext given, unsigned long long* id) {
  SIM_CALL(cuCtxGetId);
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = given != nullptr ? sim::context_of(given) : sim::current();
  if (const CUresult refused = sim::usable(context)) return refused;
  *id = context->id;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetFlags(unsigned* flags) {
  SIM_CALL(cuCtxGetFlags);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_CONTEXT(context);
  *flags = context->flags;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  SIM_CALL(cuCtxGetStreamPriorityRange);
  if (const CUresult refused = sim::usable(sim::current())) return refused;
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return CUDA_SUCCESS;
}
