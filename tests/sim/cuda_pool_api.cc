// The calls of stream-ordered allocation. While a stream is captured they become nodes of its graph
// and touch no memory (cuda_capture.cc).
#include "cuda_capture.h"
#include "cuda_driver.h"

using sim::Driver;
using sim::Guard;
using sim::Pool;

struct CUmemPoolHandle_st;
using CUmemoryPool = CUmemPoolHandle_st*;

namespace {

Pool* pool_of(CUmemoryPool handle) {
  auto* pool = reinterpret_cast<Pool*>(handle);
  return Driver::get().pools.known(pool) ? pool : nullptr;
}
CUmemoryPool handle_of(Pool* pool) {
  return reinterpret_cast<CUmemoryPool>(pool);
}

// The key of a stream's order; the default streams of a thread and of the device are one here.
uint64_t key_of(CUstream stream) {
  const auto value = reinterpret_cast<uintptr_t>(stream);
  return value <= 2 ? 1 : value;
}

CUresult allocate(CUdeviceptr* out, size_t bytes, CUmemoryPool handle, CUstream stream) {
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  SIM_CONTEXT(context);
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  if (sim::Graph* graph = sim::graph_of_capture(stream); graph != nullptr) {
    return sim::capture_allocation(graph, stream, context->ordinal, bytes, out);
  }
  Pool* pool = handle != nullptr ? pool_of(handle)
                                 : driver.pools.current_of(context->ordinal, context->device);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  const CUresult result = driver.pools.allocate(pool, bytes, key_of(stream), &address);
  if (result == CUDA_SUCCESS) *out = address;
  return result;
}

CUresult free(CUdeviceptr address, CUstream stream) {
  if (const CUresult refused = sim::usable(sim::current())) return refused;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  if (sim::Graph* graph = sim::graph_of_capture(stream); graph != nullptr) {
    return sim::capture_free(graph, stream, address);
  }
  if (driver.graph_memory.free(address)) return CUDA_SUCCESS;
  const CUresult result = driver.pools.free(address, key_of(stream));
  if (result != CUDA_ERROR_NOT_FOUND) return result;
  sim::Found found;
  if (!driver.find(address, &found) || found.base != address) return CUDA_ERROR_INVALID_VALUE;
  driver.pools.free_later(address, key_of(stream));
  return CUDA_SUCCESS;
}

CUresult pool_of_device(CUmemoryPool* out, CUdevice dev, bool current) {
  Driver& driver = Driver::get();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!driver.valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const Guard guard(driver.lock());
  const int physical = driver.physical(dev);
  *out = handle_of(current ? driver.pools.current_of(dev, physical)
                           : driver.pools.default_of(dev, physical));
  return CUDA_SUCCESS;
}

CUresult attribute_of(Pool* pool, int attribute, uint64_t** place) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *place = &pool->threshold;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *place = &pool->reserved;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *place = &pool->reserved_high;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *place = &pool->used;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *place = &pool->used_high;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult set_current(CUdevice dev, CUmemoryPool handle) {
  Driver& driver = Driver::get();
  if (!driver.valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const Guard guard(driver.lock());
  Pool* pool = pool_of(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  driver.pools.current_of(dev, driver.physical(dev)) = pool;
  return CUDA_SUCCESS;
}

bool names_device(const CUmemLocation* location, int type) {
  return location != nullptr && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
         type == CU_MEM_ALLOCATION_TYPE_PINNED;
}

}  // namespace

SIM_API CUresult cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
  SIM_CALL(cuMemAllocAsync);
  return allocate(out, bytes, nullptr, stream);
}
SIM_API CUresult cuMemAllocAsync_ptsz(CUdeviceptr* out, size_t bytes, CUstream stream) {
  SIM_CALL(cuMemAllocAsync_ptsz);
  return allocate(out, bytes, nullptr, stream);
}
SIM_API CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool pool,
                                         CUstream stream) {
  SIM_CALL(cuMemAllocFromPoolAsync);
  return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : allocate(out, bytes, pool, stream);
}
SIM_API CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* out, size_t bytes, CUmemoryPool pool,
                                              CUstream stream) {
  SIM_CALL(cuMemAllocFromPoolAsync_ptsz);
  return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : allocate(out, bytes, pool, stream);
}
SIM_API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  SIM_CALL(cuMemFreeAsync);
  return free(address, stream);
}
SIM_API CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  SIM_CALL(cuMemFreeAsync_ptsz);
  return free(address, stream);
}

SIM_API CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* props) {
  SIM_CALL(cuMemPoolCreate);
  if (out == nullptr || props == nullptr || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = sim::check_location(props->location)) return refused;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  const bool on_device = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  *out =
      handle_of(driver.pools.create(*props, on_device ? driver.physical(props->location.id) : -1));
  return CUDA_SUCCESS;
}
SIM_API CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  SIM_CALL(cuMemPoolDestroy);
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  Pool* pool = pool_of(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  driver.pools.destroy(pool);
  return CUDA_SUCCESS;
}
SIM_API CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t bytes_to_keep) {
  SIM_CALL(cuMemPoolTrimTo);
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  Pool* pool = pool_of(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  driver.pools.trim(pool, bytes_to_keep);
  return CUDA_SUCCESS;
}
SIM_API CUresult cuMemPoolGetAttribute(CUmemoryPool handle, int attribute, void* value) {
  SIM_CALL(cuMemPoolGetAttribute);
  const Guard guard(Driver::get().lock());
  Pool* pool = pool_of(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
      attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
    *static_cast<int*>(value) = 1;
    return CUDA_SUCCESS;
  }
  uint64_t* place = nullptr;
  const CUresult result = attribute_of(pool, attribute, &place);
  if (result == CUDA_SUCCESS) *static_cast<uint64_t*>(value) = *place;
  return result;
}
SIM_API CUresult cuMemPoolSetAttribute(CUmemoryPool handle, int attribute, void* value) {
  SIM_CALL(cuMemPoolSetAttribute);
  const Guard guard(Driver::get().lock());
  Pool* pool = pool_of(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto wanted = attribute >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
                          ? *static_cast<const uint64_t*>(value)
                          : uint64_t{0};
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool->threshold = wanted;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (wanted != 0) return CUDA_ERROR_INVALID_VALUE;
      (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? pool->used_high : pool->reserved_high) =
          attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? pool->used : pool->reserved;
      return CUDA_SUCCESS;
    default:
      return attribute >= 1 && attribute <= 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
}
SIM_API CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* map, size_t count) {
  SIM_CALL(cuMemPoolSetAccess);
  const Guard guard(Driver::get().lock());
  return pool_of(handle) != nullptr && (map != nullptr || count == 0) ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuMemPoolGetAccess(int* flags, CUmemoryPool handle, CUmemLocation* location) {
  SIM_CALL(cuMemPoolGetAccess);
  const Guard guard(Driver::get().lock());
  if (pool_of(handle) == nullptr || flags == nullptr || location == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  *flags = 3;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice dev) {
  SIM_CALL(cuDeviceGetDefaultMemPool);
  return pool_of_device(out, dev, false);
}
SIM_API CUresult cuDeviceGetMemPool(CUmemoryPool* out, CUdevice dev) {
  SIM_CALL(cuDeviceGetMemPool);
  return pool_of_device(out, dev, true);
}
SIM_API CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  SIM_CALL(cuDeviceSetMemPool);
  return set_current(dev, pool);
}
SIM_API CUresult cuMemGetDefaultMemPool(CUmemoryPool* out, CUmemLocation* location, int type) {
  SIM_CALL(cuMemGetDefaultMemPool);
  if (!names_device(location, type)) return CUDA_ERROR_NOT_SUPPORTED;
  return pool_of_device(out, location->id, false);
}
SIM_API CUresult cuMemGetMemPool(CUmemoryPool* out, CUmemLocation* location, int type) {
  SIM_CALL(cuMemGetMemPool);
  if (!names_device(location, type)) return CUDA_ERROR_NOT_SUPPORTED;
  return pool_of_device(out, location->id, true);
}
SIM_API CUresult cuMemSetMemPool(CUmemLocation* location, int type, CUmemoryPool pool) {
  SIM_CALL(cuMemSetMemPool);
  if (!names_device(location, type)) return CUDA_ERROR_NOT_SUPPORTED;
  return set_current(location->id, pool);
}
