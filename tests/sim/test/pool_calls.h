// The calls on pools, streams and events that several tests make, with the common arguments filled
// in. Each opens its symbol anew, because the library may only be loaded in children.
// Results are those of the calls.
#pragma once

#include "sim/cuda/memory_abi.h"
#include "sim/test/support.h"

namespace simtest {

using Pointer = unsigned long long;

inline CUmemPoolProps pool_props(int type = CU_MEM_LOCATION_TYPE_DEVICE, int id = 0) {
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {type, id};
  return props;
}

inline int pool_create(CUmemoryPool* out, const CUmemPoolProps& props = pool_props()) {
  return cuda<int(CUmemoryPool*, const CUmemPoolProps*)>("cuMemPoolCreate")(out, &props);
}
inline int pool_destroy(CUmemoryPool pool) {
  return cuda<int(CUmemoryPool)>("cuMemPoolDestroy")(pool);
}
inline int pool_trim(CUmemoryPool pool, size_t keep) {
  return cuda<int(CUmemoryPool, size_t)>("cuMemPoolTrimTo")(pool, keep);
}
inline CUmemoryPool default_pool(int dev = 0) {
  CUmemoryPool pool = nullptr;
  EXPECT_EQ((cuda<int(CUmemoryPool*, int)>("cuDeviceGetDefaultMemPool")(&pool, dev)), 0);
  return pool;
}
inline int pool_get(CUmemoryPool pool, int attribute, uint64_t* value) {
  return cuda<int(CUmemoryPool, int, void*)>("cuMemPoolGetAttribute")(pool, attribute, value);
}
inline int pool_set(CUmemoryPool pool, int attribute, uint64_t value) {
  return cuda<int(CUmemoryPool, int, void*)>("cuMemPoolSetAttribute")(pool, attribute, &value);
}
// In MiB, as most tests count; UINT64_MAX when there is no answer.
inline uint64_t reserved(CUmemoryPool pool) {
  uint64_t value = 0;
  return pool_get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value) == 0 ? value / kMiB
                                                                           : UINT64_MAX;
}
inline uint64_t used_bytes(CUmemoryPool pool) {
  uint64_t value = 0;
  EXPECT_EQ(pool_get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value), 0);
  return value;
}

inline int pool_alloc(Pointer* out, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return cuda<int(Pointer*, size_t, CUmemoryPool, CUstream)>("cuMemAllocFromPoolAsync")(
      out, bytes, pool, stream);
}
inline int alloc_async(Pointer* out, size_t bytes, CUstream stream) {
  return cuda<int(Pointer*, size_t, CUstream)>("cuMemAllocAsync")(out, bytes, stream);
}
inline int free_async(Pointer address, CUstream stream) {
  return cuda<int(Pointer, CUstream)>("cuMemFreeAsync")(address, stream);
}

inline CUstream stream_create(unsigned flags = 1) {
  CUstream stream = nullptr;
  EXPECT_EQ((cuda<int(CUstream*, unsigned)>("cuStreamCreate")(&stream, flags)), 0);
  return stream;
}
inline int stream_sync(CUstream stream) {
  return cuda<int(CUstream)>("cuStreamSynchronize")(stream);
}
inline int context_sync() {
  return cuda<int()>("cuCtxSynchronize")();
}
inline CUevent event_create() {
  CUevent event = nullptr;
  EXPECT_EQ((cuda<int(CUevent*, unsigned)>("cuEventCreate")(&event, 0)), 0);
  return event;
}
inline int event_record(CUevent event, CUstream stream) {
  return cuda<int(CUevent, CUstream)>("cuEventRecord")(event, stream);
}
inline int event_sync(CUevent event) {
  return cuda<int(CUevent)>("cuEventSynchronize")(event);
}

}  // namespace simtest
