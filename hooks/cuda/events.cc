// Events. If one stream waits for another by an event, the driver may give it memory that the other
// stream freed before. Until a pool hands out memory, these hooks cost one comparison.
#include "hooks/cuda/streams.h"

namespace fracgpu::cuda {
namespace {

uint64_t number_of(CUevent event) {
  return reinterpret_cast<uint64_t>(event);
}

// The process, if the order of its streams can matter to its pools. Null otherwise.
Process* with_pools() {
  driver_library.resolve();
  Process* const process = Process::known();
  return process != nullptr && !process->pool_blocks.empty() ? process : nullptr;
}

// Calls `call()`, which records the event. In a captured stream, the event is a place in the graph,
// and no stream can wait for it. While any stream is captured, nothing is remembered.
template <typename Call>
CUresult record(CUevent event, const Stream& stream, Call call) {
  Process* const process = with_pools();
  if (process == nullptr) return call();
  const uint64_t epoch = process->contexts.epoch();
  const uint64_t moment = process->pool_blocks.moment();
  process->pool_blocks.forget_event(number_of(event));
  const CUresult result = call();
  if (result == kSuccess && !process->streams.any_captured())
    process->pool_blocks.record(number_of(event), number_of(*process, stream), moment, epoch);
  return result;
}

template <typename Call>
CUresult wait(const Stream& stream, CUevent event, Call call) {
  Process* const process = with_pools();
  const CUresult result = call();
  if (process != nullptr && result == kSuccess && !process->streams.any_captured()) {
    process->pool_blocks.wait(number_of(*process, stream), number_of(event),
                              process->contexts.epoch());
  }
  return result;
}

// Forgets the event before the driver may give its handle to another one.
template <typename Real>
CUresult destroy(CUevent event, const Real& real) {
  if (Process* const process = with_pools()) process->pool_blocks.forget_event(number_of(event));
  return real(event);
}

}  // namespace

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return record(event, {stream, false}, [&] { return real::cuEventRecord(event, stream); });
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream) {
  return record(event, {stream, true}, [&] { return real::cuEventRecord_ptsz(event, stream); });
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
  return record(event, {stream, false},
                [&] { return real::cuEventRecordWithFlags(event, stream, flags); });
}

CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags) {
  return record(event, {stream, true},
                [&] { return real::cuEventRecordWithFlags_ptsz(event, stream, flags); });
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  return wait({stream, false}, event,
              [&] { return real::cuStreamWaitEvent(stream, event, flags); });
}

CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags) {
  return wait({stream, true}, event,
              [&] { return real::cuStreamWaitEvent_ptsz(stream, event, flags); });
}

CUresult cuEventDestroy(CUevent event) {
  return destroy(event, real::cuEventDestroy);
}

CUresult cuEventDestroy_v2(CUevent event) {
  return destroy(event, real::cuEventDestroy_v2);
}

}  // namespace fracgpu::cuda
