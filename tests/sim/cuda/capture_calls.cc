// The calls that capture a stream. The legacy stream cannot be captured, and cannot be asked while
// a blocking stream of its context is.
#include "sim/cuda/capture_table.h"
#include "sim/cuda/driver.h"

using sim::Driver;
using sim::Guard;

namespace {

CUresult begin(CUstream handle, bool per_thread, int mode) {
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  CUstream stream = nullptr;
  if (const CUresult refused = driver.streams.find(handle, per_thread, &stream)) return refused;
  return sim::begin_capture(stream, mode);
}

CUresult end(CUstream handle, bool per_thread, CUgraph* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  CUstream stream = nullptr;
  if (const CUresult refused = driver.streams.find(handle, per_thread, &stream)) return refused;
  return sim::end_capture(stream, out);
}

// The simulated driver captures anew, and leaves the graph as it is.
CUresult recapture(CUstream handle, bool per_thread, int mode, CUgraph graph) {
  {
    const Guard guard(Driver::get().lock());
    if (Driver::get().graphs.find(graph) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  }
  return begin(handle, per_thread, mode);
}

// What a graphics API would run is captured into a graph that nobody gets.
CUresult end_to_graphics(CUstream handle, bool per_thread) {
  CUgraph graph = nullptr;
  const CUresult result = end(handle, per_thread, &graph);
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  if (result == CUDA_SUCCESS) driver.graphs.destroy(driver.graphs.find(graph));
  return result;
}

CUresult is_capturing(CUstream handle, bool per_thread, int* status) {
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  CUstream stream = nullptr;
  if (const CUresult refused = driver.streams.find(handle, per_thread, &stream)) return refused;
  return sim::capture_status(stream, status);
}

}  // namespace

SIM_API CUresult cuStreamBeginCapture(CUstream stream) {
  SIM_CALL(cuStreamBeginCapture);
  return begin(stream, false, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
SIM_API CUresult cuStreamBeginCapture_ptsz(CUstream stream) {
  SIM_CALL(cuStreamBeginCapture_ptsz);
  return begin(stream, true, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
SIM_API CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  SIM_CALL(cuStreamBeginCapture_v2);
  return begin(stream, false, mode);
}
SIM_API CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode) {
  SIM_CALL(cuStreamBeginCapture_v2_ptsz);
  return begin(stream, true, mode);
}
SIM_API CUresult cuStreamEndCapture(CUstream stream, CUgraph* out) {
  SIM_CALL(cuStreamEndCapture);
  return end(stream, false, out);
}
SIM_API CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* out) {
  SIM_CALL(cuStreamEndCapture_ptsz);
  return end(stream, true, out);
}
SIM_API CUresult cuStreamBeginRecaptureToGraph(CUstream stream, int mode, CUgraph graph, void*,
                                               void*) {
  SIM_CALL(cuStreamBeginRecaptureToGraph);
  return recapture(stream, false, mode, graph);
}
SIM_API CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, int mode, CUgraph graph, void*,
                                                    void*) {
  SIM_CALL(cuStreamBeginRecaptureToGraph_ptsz);
  return recapture(stream, true, mode, graph);
}
SIM_API CUresult cuStreamBeginCaptureToCig(CUstream stream, void*) {
  SIM_CALL(cuStreamBeginCaptureToCig);
  return begin(stream, false, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
SIM_API CUresult cuStreamBeginCaptureToCig_ptsz(CUstream stream, void*) {
  SIM_CALL(cuStreamBeginCaptureToCig_ptsz);
  return begin(stream, true, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
SIM_API CUresult cuStreamEndCaptureToCig(CUstream stream) {
  SIM_CALL(cuStreamEndCaptureToCig);
  return end_to_graphics(stream, false);
}
SIM_API CUresult cuStreamEndCaptureToCig_ptsz(CUstream stream) {
  SIM_CALL(cuStreamEndCaptureToCig_ptsz);
  return end_to_graphics(stream, true);
}
SIM_API CUresult cuStreamIsCapturing(CUstream stream, int* status) {
  SIM_CALL(cuStreamIsCapturing);
  return is_capturing(stream, false, status);
}
SIM_API CUresult cuStreamIsCapturing_ptsz(CUstream stream, int* status) {
  SIM_CALL(cuStreamIsCapturing_ptsz);
  return is_capturing(stream, true, status);
}
SIM_API CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  SIM_CALL(cuThreadExchangeStreamCaptureMode);
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
      *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  *mode = sim::exchange_capture_mode(*mode);
  return CUDA_SUCCESS;
}
