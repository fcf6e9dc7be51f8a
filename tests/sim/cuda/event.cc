// The calls on events. One remembers how far its stream had come when it was recorded; waiting for
// it is waiting for that much of the stream. Recorded in a stream that is captured, it stands for a
// place in the graph, and a stream that waits for it is captured along.
#include "sim/cuda/capture_table.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/stream_table.h"

using sim::Driver;
using sim::Guard;

namespace {

CUresult destroy(CUevent event) {
  const Guard guard(Driver::get().lock());
  return Driver::get().streams.destroy_event(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult record(CUevent event, CUstream handle, bool per_thread) {
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  if (!driver.streams.known(event)) return CUDA_ERROR_INVALID_HANDLE;
  CUstream stream = nullptr;
  if (const CUresult refused = driver.streams.find(handle, per_thread, &stream)) return refused;
  if (stream->capture == nullptr) {
    if (const CUresult refused = sim::refused_in_capture(stream)) return refused;
  }
  event->capture = stream->capture;
  event->tail = stream->tail;
  if (event->capture == nullptr) event->reach = driver.streams.reach(*stream);
  return CUDA_SUCCESS;
}

CUresult wait(CUstream handle, bool per_thread, CUevent event) {
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  if (!driver.streams.known(event)) return CUDA_ERROR_INVALID_HANDLE;
  CUstream stream = nullptr;
  if (const CUresult refused = driver.streams.find(handle, per_thread, &stream)) return refused;
  if (const CUresult refused = sim::join_capture(stream, *event)) return refused;
  if (stream->capture == nullptr) sim::Streams::follow(stream, event->reach);
  return CUDA_SUCCESS;
}

// Asks for work that is only in a graph are refused.
CUresult observe(CUevent event, bool wait) {
  Driver& driver = Driver::get();
  sim::Reach reach;
  {
    const Guard guard(driver.lock());
    if (!driver.streams.known(event)) return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
    reach = event->reach;
  }
  if (!wait)
    return reach.busy_until != 0 && sim::now_ns() < reach.busy_until ? CUDA_ERROR_NOT_READY
                                                                     : CUDA_SUCCESS;
  sim::wait_until(reach.busy_until);
  const Guard guard(driver.lock());
  driver.pools.synchronised(reach);
  return CUDA_SUCCESS;
}

CUresult elapsed(float* milliseconds, CUevent start, CUevent end) {
  const Guard guard(Driver::get().lock());
  const sim::Streams& streams = Driver::get().streams;
  if (milliseconds == nullptr || !streams.known(start) || !streams.known(end))
    return CUDA_ERROR_INVALID_HANDLE;
  *milliseconds = 0;
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API CUresult cuEventCreate(CUevent* out, unsigned flags) {
  SIM_CALL(cuEventCreate);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = sim::usable(sim::current())) return refused;
  const Guard guard(Driver::get().lock());
  *out = Driver::get().streams.create_event(flags);
  return CUDA_SUCCESS;
}
SIM_API CUresult cuEventDestroy(CUevent event) {
  SIM_CALL(cuEventDestroy);
  return destroy(event);
}
SIM_API CUresult cuEventDestroy_v2(CUevent event) {
  SIM_CALL(cuEventDestroy_v2);
  return destroy(event);
}
SIM_API CUresult cuEventRecord(CUevent event, CUstream stream) {
  SIM_CALL(cuEventRecord);
  return record(event, stream, false);
}
SIM_API CUresult cuEventRecord_ptsz(CUevent event, CUstream stream) {
  SIM_CALL(cuEventRecord_ptsz);
  return record(event, stream, true);
}
SIM_API CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned) {
  SIM_CALL(cuEventRecordWithFlags);
  return record(event, stream, false);
}
SIM_API CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned) {
  SIM_CALL(cuEventRecordWithFlags_ptsz);
  return record(event, stream, true);
}
SIM_API CUresult cuEventQuery(CUevent event) {
  SIM_UNSAFE_CALL(cuEventQuery);
  return observe(event, false);
}
SIM_API CUresult cuEventSynchronize(CUevent event) {
  SIM_CALL(cuEventSynchronize);
  return observe(event, true);
}
SIM_API CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  SIM_CALL(cuEventElapsedTime);
  return elapsed(milliseconds, start, end);
}
SIM_API CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  SIM_CALL(cuEventElapsedTime_v2);
  return elapsed(milliseconds, start, end);
}
SIM_API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  SIM_CALL(cuStreamWaitEvent);
  return wait(stream, false, event);
}
SIM_API CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned) {
  SIM_CALL(cuStreamWaitEvent_ptsz);
  return wait(stream, true, event);
}
