// Wrappers that pass the driver's calls to the recorder; see hooks/recorded_call.h.
//
// They run inside of the hooks, which have already found the call's context. Driver calls that the
// hooks make on their own account are recorded like the program's calls: they are as real.
#include "hooks/cuda/recorded.h"

#include "hooks/cuda/hook.h"
#include "hooks/cuda/pools.h"
#include "hooks/cuda/streams.h"
#include "hooks/recorded_call.h"
#include "shim/charge/linear.h"

namespace fracgpu::cuda {
namespace {

using ring::Kind;
using ring::Type;

// The calling thread's context, which the hook has just looked up.
const Context& own_context() {
  return remembered_context.context;
}

void record_linear_memory(const RecordedCall& call, Kind kind, const char* api, uint64_t address,
                          uint64_t bytes) {
  const LinearSize size = linear_size(bytes);
  record_allocation(call, kind, own_context().device_index, api, address, bytes,
                    size.shares_chunk ? 0 : size.units * layout::kUnit, own_context().id);
}

template <auto& unwrapped, typename Pointer, typename Size>
CUresult allocate(Pointer* out, Size bytes) {
  const RecordedCall call;
  const CUresult result = unwrapped(out, bytes);
  if (result == kSuccess)
    record_linear_memory(call, Kind::linear, "cuMemAlloc", uint64_t{*out}, bytes);
  return result;
}

template <auto& unwrapped, typename Pointer, typename Size>
CUresult allocate_pitched(Pointer* out, Size* pitch, Size width, Size height,
                          unsigned int element_bytes) {
  const RecordedCall call;
  const CUresult result = unwrapped(out, pitch, width, height, element_bytes);
  if (result == kSuccess) {
    record_linear_memory(call, Kind::linear, "cuMemAllocPitch", uint64_t{*out},
                         uint64_t{*pitch} * height);
  }
  return result;
}

CUresult allocate_managed(CUdeviceptr* out, size_t bytes, unsigned int flags) {
  const RecordedCall call;
  const CUresult result = unwrapped::cuMemAllocManaged(out, bytes, flags);
  if (result == kSuccess)
    record_linear_memory(call, Kind::managed, "cuMemAllocManaged", *out, bytes);
  return result;
}

template <auto& unwrapped, typename Pointer>
CUresult release(Pointer pointer) {
  return record_release(pointer, "cuMemFree", [&] { return unwrapped(pointer); });
}

template <auto& unwrapped, typename Array>
CUresult destroy_array(Array array) {
  return record_release(reinterpret_cast<uint64_t>(array), "cuArrayDestroy",
                        [&] { return unwrapped(array); });
}

// Pools.

void record_from_pool(const RecordedCall& call, const char* api, CUmemoryPool pool,
                      int device_index, CUdeviceptr address, size_t bytes) {
  record_allocation(call, Kind::pool, device_index, api, address, bytes, 0, key_of(pool));
}

template <auto& unwrapped, bool per_thread>
CUresult allocate_async(CUdeviceptr* out, size_t bytes, CUstream stream) {
  const RecordedCall call;
  const CUresult result = unwrapped(out, bytes, stream);
  if (result != kSuccess || call.process() == nullptr) return result;
  Context context;
  CUmemoryPool pool = nullptr;
  int device_index = Process::kNotCapped;
  if (!is_capturing(*call.process(), {stream, per_thread}) &&
      context_of(*call.process(), {stream, per_thread}, context) && context.device_index >= 0 &&
      current_pool(*call.process(), context.device, pool, device_index) == kSuccess) {
    record_from_pool(call, "cuMemAllocAsync", pool, device_index, *out, bytes);
  }
  return result;
}

template <auto& unwrapped, bool per_thread>
CUresult allocate_from_pool(CUdeviceptr* out, size_t bytes, CUmemoryPool pool, CUstream stream) {
  const RecordedCall call;
  const CUresult result = unwrapped(out, bytes, pool, stream);
  if (result == kSuccess && call.process() != nullptr &&
      !is_capturing(*call.process(), {stream, per_thread})) {
    record_from_pool(call, "cuMemAllocFromPoolAsync", pool, index_of_pool(*call.process(), pool),
                     *out, bytes);
  }
  return result;
}

template <auto& unwrapped>
CUresult release_async(CUdeviceptr pointer, CUstream stream) {
  return record_release(pointer, "cuMemFreeAsync", [&] { return unwrapped(pointer, stream); });
}

void record_level(const RecordedCall& call, Kind kind, int device_index, uint64_t owner,
                  uint64_t bytes) {
  if (call.process() == nullptr || device_index < 0) return;
  call.process()->recorder.add({.type = Type::level,
                                .kind = kind,
                                .device = static_cast<uint8_t>(device_index),
                                .taken = bytes,
                                .owner = owner});
}

CUresult get_pool_attribute(CUmemoryPool pool, int attribute, void* value) {
  const RecordedCall call;
  const CUresult result = unwrapped::cuMemPoolGetAttribute(pool, attribute, value);
  Pool known;
  if (result == kSuccess && attribute == kPoolReserved && call.process() != nullptr &&
      call.process()->pools.find(key_of(pool), known)) {
    record_level(call, Kind::reserved, known.device_index, key_of(pool),
                 *static_cast<uint64_t*>(value));
  }
  return result;
}

CUresult get_graph_attribute(CUdevice device, int attribute, void* value) {
  const RecordedCall call;
  const CUresult result = unwrapped::cuDeviceGetGraphMemAttribute(device, attribute, value);
  if (result == kSuccess && attribute == kGraphReserved && call.process() != nullptr) {
    record_level(call, Kind::graph, device_index_of(*call.process(), device),
                 static_cast<uint64_t>(device) + 1, *static_cast<uint64_t*>(value));
  }
  return result;
}

// The hook has already forgotten the pool's device.
CUresult destroy_pool(CUmemoryPool pool) {
  const RecordedCall call;
  const CUresult result = unwrapped::cuMemPoolDestroy(pool);
  if (result == kSuccess && call.process() != nullptr) {
    call.process()->recorder.add(
        {.type = Type::level, .kind = Kind::reserved, .owner = key_of(pool)});
  }
  return result;
}

template <typename Function>
void wrap(size_t number, Function* wrapper) {
  driver_library.wrap(number, reinterpret_cast<void*>(wrapper));
}

}  // namespace

void record_calls() {
  wrap(slot::cuMemAlloc_v2, allocate<unwrapped::cuMemAlloc_v2, CUdeviceptr, size_t>);
  wrap(slot::cuMemAlloc, allocate<unwrapped::cuMemAlloc, CUdeviceptr_v1, unsigned int>);
  wrap(slot::cuMemAllocPitch_v2,
       allocate_pitched<unwrapped::cuMemAllocPitch_v2, CUdeviceptr, size_t>);
  wrap(slot::cuMemAllocPitch,
       allocate_pitched<unwrapped::cuMemAllocPitch, CUdeviceptr_v1, unsigned int>);
  wrap(slot::cuMemAllocManaged, allocate_managed);
  wrap(slot::cuMemFree_v2, release<unwrapped::cuMemFree_v2, CUdeviceptr>);
  wrap(slot::cuMemFree, release<unwrapped::cuMemFree, CUdeviceptr_v1>);
  wrap(slot::cuArrayDestroy, destroy_array<unwrapped::cuArrayDestroy, CUarray>);
  wrap(slot::cuMipmappedArrayDestroy,
       destroy_array<unwrapped::cuMipmappedArrayDestroy, CUmipmappedArray>);
  wrap(slot::cuMemAllocAsync, allocate_async<unwrapped::cuMemAllocAsync, false>);
  wrap(slot::cuMemAllocAsync_ptsz, allocate_async<unwrapped::cuMemAllocAsync_ptsz, true>);
  wrap(slot::cuMemAllocFromPoolAsync,
       allocate_from_pool<unwrapped::cuMemAllocFromPoolAsync, false>);
  wrap(slot::cuMemAllocFromPoolAsync_ptsz,
       allocate_from_pool<unwrapped::cuMemAllocFromPoolAsync_ptsz, true>);
  wrap(slot::cuMemFreeAsync, release_async<unwrapped::cuMemFreeAsync>);
  wrap(slot::cuMemFreeAsync_ptsz, release_async<unwrapped::cuMemFreeAsync_ptsz>);
  wrap(slot::cuMemPoolGetAttribute, get_pool_attribute);
  wrap(slot::cuMemPoolDestroy, destroy_pool);
  wrap(slot::cuDeviceGetGraphMemAttribute, get_graph_attribute);
}

}  // namespace fracgpu::cuda
