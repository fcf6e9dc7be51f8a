// Capture of streams: what they are told becomes nodes of a graph instead of being done.
// A stream that waits for an event of a captured one is captured along, until the stream where it
// began ends it. All of it wants the driver's lock held.
#pragma once

#include <atomic>
#include <set>

#include "sim/cuda/graph_table.h"
#include "sim/cuda/stream_table.h"

namespace sim {

struct Capture {
  Graph* graph = nullptr;
  CUstream origin = nullptr;
  int mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint64_t thread = 0;  // which began it
  bool invalid = false;
  bool ended = false;
  std::set<CUstream> streams;
};

// Read without the lock by calls that have nothing to do while it is 0.
extern std::atomic<int> captures_under_way;

CUresult begin_capture(CUstream stream, int mode);
// No graph, and an error, if the capture had become invalid.
CUresult end_capture(CUstream stream, CUgraph* out);
CUresult capture_status(CUstream stream, int* status);
// The calling thread's view of what is unsafe; the one it had before.
int exchange_capture_mode(int mode);

// For work that a captured stream cannot have, and work of the legacy stream that would have to
// wait for a captured one: an error, and the capture is invalid from then on.
CUresult refused_in_capture(CUstream stream);
CUresult refused_in_capture(const Context& context);
// For calls that are "potentially unsafe", in threads that have not said that they do not mind
// (CUDA driver API, cuThreadExchangeStreamCaptureMode). There is no public list. Known to fail are
// allocations and cudaEventQuery (the documentation's examples), attributes of pools
// (NVIDIA/cuda-python#2834, NVIDIA/cccl#11360) and loading modules. The others that are refused
// here change, wait for, or report what the device has, as those do. Since nobody knows which a
// driver counts among them, a test may name more: FRACGPU_SIM_UNSAFE="cuCtxGetLimit,…".
CUresult refused_in_any_capture();
inline CUresult refused_as_unsafe() {
  if (captures_under_way.load(std::memory_order_relaxed) != 0) [[unlikely]]
    return refused_in_any_capture();
  return CUDA_SUCCESS;
}

CUresult capture_allocation(CUstream stream, const CUmemPoolProps& props, uint64_t bytes,
                            uint64_t* out);
CUresult capture_free(CUstream stream, uint64_t address);
CUresult capture_kernel(CUstream stream);

CUresult join_capture(CUstream stream, const CUevent_st& event);
// The stream is about to be destroyed.
void leave_capture(CUstream stream);

}  // namespace sim

// As SIM_CALL, of a call that is potentially unsafe.
#define SIM_UNSAFE_CALL(name)                                                     \
  SIM_CALL(name);                                                                 \
  do {                                                                            \
    if (::sim::captures_under_way.load(std::memory_order_relaxed) == 0) break;    \
    const ::sim::Guard sim_guard(::sim::Driver::get().lock());                    \
    if (const CUresult refused = ::sim::refused_in_any_capture()) return refused; \
  } while (false)
