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
