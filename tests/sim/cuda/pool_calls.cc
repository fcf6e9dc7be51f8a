// The calls of stream-ordered allocation. While a stream is captured they become nodes of its graph
// and touch no memory (capture_table.h).
#include "sim/cuda/capture_table.h"
#include "sim/cuda/driver.h"

using sim::Driver;
using sim::Guard;
using sim::Pool;

namespace {

// From this pool, or from the current one of the stream's device.
CUresult allocate(CUdeviceptr* out, size_t bytes, const CUmemoryPool* named, CUstream handle,
                  bool per_thread) {
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  CUstream stream = nullptr;
  if (const CUresult refused = driver.streams.find(handle, per_thread, &stream)) return refused;
  Pool* pool =
      named != nullptr
          ? driver.pools.find(*named)
          : driver.pools.current_of({CU_MEM_LOCATION_TYPE_DEVICE, stream->context->ordinal});
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  CUresult result = CUDA_SUCCESS;
  if (stream->capture != nullptr) {
    result = sim::capture_allocation(stream, pool->props, bytes, &address);
  } else {
    result = sim::refused_in_capture(stream);
    if (result == CUDA_SUCCESS) result = driver.pools.allocate(pool, bytes, *stream, &address);
  }
  if (result == CUDA_SUCCESS) *out = address;
  return result;
}

CUresult free(CUdeviceptr address, CUstream handle, bool per_thread) {
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  CUstream stream = nullptr;
  if (const CUresult refused = driver.streams.find(handle, per_thread, &stream)) return refused;
  if (stream->capture != nullptr) return sim::capture_free(stream, address);
  if (const CUresult refused = sim::refused_in_capture(stream)) return refused;
  // A graph's memory is free for the next graph at once: see graph_memory.cc.
  return driver.graph_memory.contains(address) ? driver.graph_memory.free(address)
                                               : driver.pools.free_in(*stream, address);
}

}  // namespace

SIM_API CUresult cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
  SIM_CALL(cuMemAllocAsync);
  return allocate(out, bytes, nullptr, stream, false);
}
SIM_API CUresult cuMemAllocAsync_ptsz(CUdeviceptr* out, size_t bytes, CUstream stream) {
  SIM_CALL(cuMemAllocAsync_ptsz);
  return allocate(out, bytes, nullptr, stream, true);
}
SIM_API CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool pool,
                                         CUstream stream) {
  SIM_CALL(cuMemAllocFromPoolAsync);
  return allocate(out, bytes, &pool, stream, false);
}
SIM_API CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* out, size_t bytes, CUmemoryPool pool,
                                              CUstream stream) {
  SIM_CALL(cuMemAllocFromPoolAsync_ptsz);
  return allocate(out, bytes, &pool, stream, true);
}
SIM_API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  SIM_CALL(cuMemFreeAsync);
  return free(address, stream, false);
}
SIM_API CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  SIM_CALL(cuMemFreeAsync_ptsz);
  return free(address, stream, true);
}

SIM_API CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
  SIM_UNSAFE_CALL(cuMemPoolTrimTo);
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  Pool* pool = driver.pools.find(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  driver.pools.trim(pool, keep);
  return CUDA_SUCCESS;
}
