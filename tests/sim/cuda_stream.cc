// Streams, events and launches: opaque handles whose work is always finished.
// They cost no device memory, as on the real driver, where a stream lives in the context's own
// reserve. A launch does nothing but check that there is a function.
#include <new>

#include "cuda_driver.h"

struct CUstream_st {
  unsigned flags;
  int priority;
  sim::Context* context;
};
struct CUevent_st {
  unsigned flags;
};

namespace {

CUresult create_stream(CUstream* out, sim::Context* context, unsigned flags, int priority) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = sim::usable(context)) return refused;
  *out = new (std::nothrow) CUstream_st{flags, priority, context};
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult destroy_stream(CUstream stream) {
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  delete stream;
  return CUDA_SUCCESS;
}

// The default streams, of the device and of the thread, are one here.
bool is_default(CUstream stream) {
  return reinterpret_cast<uintptr_t>(stream) <= 2;
}

CUresult synchronise(CUstream stream) {
  SIM_CONTEXT(context);
  sim::Driver& driver = sim::Driver::get();
  const sim::Guard guard(driver.lock());
  driver.pools.synchronised(is_default(stream) ? 1 : reinterpret_cast<uintptr_t>(stream));
  return context->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult context_of_stream(CUstream stream, CUcontext* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_CONTEXT(context);
  *out = sim::handle(is_default(stream) ? context : stream->context);
  return CUDA_SUCCESS;
}

CUresult destroy_event(CUevent event) {
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  delete event;
  return CUDA_SUCCESS;
}

CUresult with_event(CUevent event) {
  return event != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

SIM_API CUresult cuStreamCreate(CUstream* out, unsigned flags) {
  SIM_CALL(cuStreamCreate);
  return create_stream(out, sim::current(), flags, 0);
}
SIM_API CUresult cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority) {
  SIM_CALL(cuStreamCreateWithPriority);
  return create_stream(out, sim::current(), flags, priority);
}
SIM_API CUresult cuGreenCtxStreamCreate(CUstream* out, struct CUgreenCtx_st* green, unsigned flags,
                                        int priority) {
  SIM_CALL(cuGreenCtxStreamCreate);
  // A green context's handle is its context's; such streams never wait for the default one.
  auto* context = reinterpret_cast<sim::Context*>(green);
  {
    const sim::Guard guard(sim::Driver::get().lock());
    if (context == nullptr || !sim::Driver::get().known(context) || context->parent == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
  }
  if (flags != 1) return CUDA_ERROR_INVALID_VALUE;
  return create_stream(out, context, flags, priority);
}
SIM_API CUresult cuStreamDestroy(CUstream stream) {
  SIM_CALL(cuStreamDestroy);
  return destroy_stream(stream);
}
SIM_API CUresult cuStreamDestroy_v2(CUstream stream) {
  SIM_CALL(cuStreamDestroy_v2);
  return destroy_stream(stream);
}
SIM_API CUresult cuStreamSynchronize(CUstream stream) {
  SIM_CALL(cuStreamSynchronize);
  return synchronise(stream);
}
SIM_API CUresult cuStreamSynchronize_ptsz(CUstream stream) {
  SIM_CALL(cuStreamSynchronize_ptsz);
  return synchronise(stream);
}
SIM_API CUresult cuStreamGetCtx(CUstream stream, CUcontext* out) {
  SIM_CALL(cuStreamGetCtx);
  return context_of_stream(stream, out);
}
SIM_API CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext* out) {
  SIM_CALL(cuStreamGetCtx_ptsz);
  return context_of_stream(stream, out);
}
SIM_API CUresult cuStreamQuery(CUstream) {
  SIM_CALL(cuStreamQuery);
  return sim::usable(sim::current());
}
SIM_API CUresult cuStreamQuery_ptsz(CUstream) {
  SIM_CALL(cuStreamQuery_ptsz);
  return sim::usable(sim::current());
}
SIM_API CUresult cuStreamWaitEvent(CUstream, CUevent event, unsigned) {
  SIM_CALL(cuStreamWaitEvent);
  return with_event(event);
}
SIM_API CUresult cuStreamWaitEvent_ptsz(CUstream, CUevent event, unsigned) {
  SIM_CALL(cuStreamWaitEvent_ptsz);
  return with_event(event);
}

SIM_API CUresult cuEventCreate(CUevent* out, unsigned flags) {
  SIM_CALL(cuEventCreate);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = sim::usable(sim::current())) return refused;
  *out = new (std::nothrow) CUevent_st{flags};
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
SIM_API CUresult cuEventDestroy(CUevent event) {
  SIM_CALL(cuEventDestroy);
  return destroy_event(event);
}
SIM_API CUresult cuEventDestroy_v2(CUevent event) {
  SIM_CALL(cuEventDestroy_v2);
  return destroy_event(event);
}
SIM_API CUresult cuEventRecord(CUevent event, CUstream) {
  SIM_CALL(cuEventRecord);
  return with_event(event);
}
SIM_API CUresult cuEventRecord_ptsz(CUevent event, CUstream) {
  SIM_CALL(cuEventRecord_ptsz);
  return with_event(event);
}
SIM_API CUresult cuEventQuery(CUevent event) {
  SIM_CALL(cuEventQuery);
  return with_event(event);
}
SIM_API CUresult cuEventSynchronize(CUevent event) {
  SIM_CALL(cuEventSynchronize);
  // Every event is behind all that was asked of any stream before it.
  const sim::Guard guard(sim::Driver::get().lock());
  sim::Driver::get().pools.synchronised(0);
  return with_event(event);
}
SIM_API CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  SIM_CALL(cuEventElapsedTime);
  if (milliseconds == nullptr || start == nullptr || end == nullptr)
    return CUDA_ERROR_INVALID_HANDLE;
  *milliseconds = 0;
  return CUDA_SUCCESS;
}
SIM_API CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  SIM_CALL(cuEventElapsedTime_v2);
  if (milliseconds == nullptr || start == nullptr || end == nullptr)
    return CUDA_ERROR_INVALID_HANDLE;
  *milliseconds = 0;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned,
                                unsigned, unsigned, unsigned, CUstream, void**, void**) {
  SIM_CALL(cuLaunchKernel);
  return function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
SIM_API CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned, unsigned, unsigned, unsigned,
                                     unsigned, unsigned, unsigned, CUstream, void**, void**) {
  SIM_CALL(cuLaunchKernel_ptsz);
  return function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
