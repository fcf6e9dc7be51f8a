// The calls on streams, and launches. A context's 10th stream takes a page, as does every 16th
// after it, and one more page every 64th; none gives it back (libcuda 535.261.03). Waiting for a
// stream is when pools learn what is free (pool_table.h); a launch does nothing but check that
// there is a function. With FRACGPU_SIM_LAUNCH_MIB the first one in a context makes the driver take
// that much, as the local memory of a kernel and lazily loaded code do (CUDA programming guide:
// lazy loading; cuCtxSetLimit: the driver resizes the local memory at launches).
#include <cstdio>
#include <cstdlib>

#include "sim/cuda/capture_table.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/module.h"
#include "sim/cuda/stream_table.h"

using sim::Driver;
using sim::Guard;

namespace {

CUresult create(CUstream* out, sim::Context* context, unsigned flags, int priority) {
  if (out == nullptr || flags > 1) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = sim::usable(context)) return refused;
  const Guard guard(Driver::get().lock());
  sim::Context* const owner = context->owner();
  const uint32_t number = owner->streams + 1;
  if (number > owner->most_streams) {
    uint64_t pages = 0;
    if (number >= 10 && (number - 10) % 16 == 0) pages = (number - 58) % 64 == 0 ? 2 : 1;
    if (pages != 0 && !Driver::get().grow(owner, pages * sim::kPage))
      return CUDA_ERROR_OUT_OF_MEMORY;
    owner->most_streams = number;
  }
  owner->streams = number;
  *out = Driver::get().streams.create(context, flags, priority);
  return CUDA_SUCCESS;
}

CUresult destroy(CUstream handle) {
  const Guard guard(Driver::get().lock());
  CUstream stream = nullptr;
  const bool known = Driver::get().streams.find(handle, false, &stream) == CUDA_SUCCESS;
  sim::Context* const owner = known ? stream->context->owner() : nullptr;
  const CUresult result = Driver::get().streams.destroy(handle);
  if (result == CUDA_SUCCESS && owner != nullptr) --owner->streams;
  return result;
}

// libcuda 535 crashes when it is asked about a stream that has ended.
CUresult find(CUstream handle, bool per_thread, CUstream* out) {
  const CUresult result = Driver::get().streams.find(handle, per_thread, out);
  if (result == CUDA_ERROR_INVALID_HANDLE) {
    std::fprintf(stderr, "simulated driver: asked about a stream that is none\n");
    std::abort();
  }
  return result;
}

CUresult synchronise(CUstream handle, bool per_thread) {
  if (const CUresult refused = sim::usable(sim::current())) return refused;
  Driver& driver = Driver::get();
  sim::Reach reach;
  {
    const Guard guard(driver.lock());
    CUstream stream = nullptr;
    if (const CUresult refused = find(handle, per_thread, &stream)) return refused;
    if (const CUresult refused = sim::refused_in_capture(stream)) return refused;
    reach = driver.streams.reach(*stream);
  }
  sim::wait_until(reach.busy_until);
  const Guard guard(driver.lock());
  driver.pools.synchronised(reach);
  return CUDA_SUCCESS;
}

CUresult query(CUstream handle, bool per_thread) {
  if (const CUresult refused = sim::usable(sim::current())) return refused;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  CUstream stream = nullptr;
  if (const CUresult refused = find(handle, per_thread, &stream)) return refused;
  if (const CUresult refused = sim::refused_in_capture(stream)) return refused;
  const uint64_t busy_until = driver.streams.reach(*stream).busy_until;
  return busy_until != 0 && sim::now_ns() < busy_until ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

// A default stream is asked for the context that is current, a green one included.
CUresult context_of(CUstream handle, bool per_thread, CUcontext* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  CUstream stream = nullptr;
  if (const CUresult refused = driver.streams.find(handle, per_thread, &stream)) return refused;
  const bool is_default = reinterpret_cast<uintptr_t>(handle) <= 2;
  *out = sim::handle(is_default ? sim::current() : stream->context);
  return CUDA_SUCCESS;
}

// The newer call gives a green context as such; in this simulator the two handles are the same.
CUresult contexts_of(CUstream handle, bool per_thread, CUcontext* out, void** green) {
  CUcontext context = nullptr;
  if (out == nullptr || green == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = context_of(handle, per_thread, &context)) return refused;
  const bool is_green = sim::context_of(context)->green;
  *out = is_green ? nullptr : context;
  *green = is_green ? context : nullptr;
  return CUDA_SUCCESS;
}

const uint64_t launch_bytes = [] {
  const char* const text = std::getenv("FRACGPU_SIM_LAUNCH_MIB");
  const uint64_t mib = text != nullptr ? std::strtoull(text, nullptr, 10) : 0;
  return ((mib << 20) + sim::kPage - 1) / sim::kPage * sim::kPage;
}();

CUresult grow_by_launch() {
  SIM_CONTEXT(current);
  sim::Context* const context = current->owner();
  const Guard guard(Driver::get().lock());
  if (context->launched) return CUDA_SUCCESS;
  if (!Driver::get().grow(context, launch_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  context->launched = true;
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction function, CUstream handle, bool per_thread) {
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (sim::any_has_local_memory.load(std::memory_order_relaxed)) [[unlikely]] {
    SIM_CONTEXT(current);
    if (const CUresult refused = sim::take_local_memory(current->owner(), function)) return refused;
  }
  if (launch_bytes != 0) [[unlikely]] {
    if (const CUresult refused = grow_by_launch()) return refused;
  }
  if (sim::captures_under_way.load(std::memory_order_relaxed) == 0 && !sim::kernels_take_time())
    return CUDA_SUCCESS;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  CUstream stream = nullptr;
  if (const CUresult refused = driver.streams.find(handle, per_thread, &stream)) return refused;
  if (stream->capture != nullptr) return sim::capture_kernel(stream);
  driver.streams.launched(stream);
  return sim::refused_in_capture(stream);
}

}  // namespace

SIM_API CUresult cuStreamCreate(CUstream* out, unsigned flags) {
  SIM_CALL(cuStreamCreate);
  return create(out, sim::current(), flags, 0);
}
SIM_API CUresult cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority) {
  SIM_CALL(cuStreamCreateWithPriority);
  return create(out, sim::current(), flags, priority);
}
SIM_API CUresult cuGreenCtxStreamCreate(CUstream* out, struct CUgreenCtx_st* green, unsigned flags,
                                        int priority) {
  SIM_CALL(cuGreenCtxStreamCreate);
  // A green context's handle is its context's; such streams never wait for the default one.
  auto* context = reinterpret_cast<sim::Context*>(green);
  {
    const Guard guard(Driver::get().lock());
    if (context == nullptr || !Driver::get().known(context) || context->parent == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
  }
  if (flags != 1) return CUDA_ERROR_INVALID_VALUE;
  return create(out, context, flags, priority);
}
SIM_API CUresult cuStreamDestroy(CUstream stream) {
  SIM_CALL(cuStreamDestroy);
  return destroy(stream);
}
SIM_API CUresult cuStreamDestroy_v2(CUstream stream) {
  SIM_CALL(cuStreamDestroy_v2);
  return destroy(stream);
}
SIM_API CUresult cuStreamSynchronize(CUstream stream) {
  SIM_CALL(cuStreamSynchronize);
  return synchronise(stream, false);
}
SIM_API CUresult cuStreamSynchronize_ptsz(CUstream stream) {
  SIM_CALL(cuStreamSynchronize_ptsz);
  return synchronise(stream, true);
}
SIM_API CUresult cuStreamQuery(CUstream stream) {
  SIM_UNSAFE_CALL(cuStreamQuery);
  return query(stream, false);
}
SIM_API CUresult cuStreamQuery_ptsz(CUstream stream) {
  SIM_UNSAFE_CALL(cuStreamQuery_ptsz);
  return query(stream, true);
}
SIM_API CUresult cuStreamGetCtx(CUstream stream, CUcontext* out) {
  SIM_CALL(cuStreamGetCtx);
  return context_of(stream, false, out);
}
SIM_API CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext* out) {
  SIM_CALL(cuStreamGetCtx_ptsz);
  return context_of(stream, true, out);
}
SIM_API CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext* out, void** green) {
  SIM_CALL(cuStreamGetCtx_v2);
  return contexts_of(stream, false, out, green);
}
SIM_API CUresult cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext* out, void** green) {
  SIM_CALL(cuStreamGetCtx_v2_ptsz);
  return contexts_of(stream, true, out, green);
}

SIM_API CUresult cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned,
                                unsigned, unsigned, unsigned, CUstream stream, void**, void**) {
  SIM_CALL(cuLaunchKernel);
  return launch(function, stream, false);
}
SIM_API CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned, unsigned, unsigned, unsigned,
                                     unsigned, unsigned, unsigned, CUstream stream, void**,
                                     void**) {
  SIM_CALL(cuLaunchKernel_ptsz);
  return launch(function, stream, true);
}
