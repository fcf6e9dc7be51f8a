// The calls that make pools and name them, and those that read and change what they are like.
#include "sim/cuda/capture_table.h"
#include "sim/cuda/driver.h"

using sim::Driver;
using sim::Guard;
using sim::Pool;

namespace {

CUmemLocation device(CUdevice dev) {
  return {CU_MEM_LOCATION_TYPE_DEVICE, dev};
}

CUresult get(CUmemoryPool* out, const CUmemLocation* where, int type, bool current) {
  if (out == nullptr || where == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = sim::check_place(*where, type)) return refused;
  sim::Pools& pools = Driver::get().pools;
  const Guard guard(Driver::get().lock());
  *out = (current ? pools.current_of(*where, type) : pools.default_of(*where, type))->handle;
  return CUDA_SUCCESS;
}

CUresult set(const CUmemLocation* where, int type, CUmemoryPool handle) {
  if (where == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = sim::check_place(*where, type)) return refused;
  sim::Pools& pools = Driver::get().pools;
  const Guard guard(Driver::get().lock());
  Pool* pool = pools.find(handle);
  return pool != nullptr && pools.set_current(*where, type, pool) ? CUDA_SUCCESS
                                                                  : CUDA_ERROR_INVALID_VALUE;
}

CUresult check(const CUmemPoolProps* props) {
  if (props == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = sim::check_place(props->location, props->allocType)) return refused;
  const bool shareable = props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
                         props->location.type != CU_MEM_LOCATION_TYPE_HOST;
  if (props->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT ||
      (!shareable && props->handleTypes != 0))
    return CUDA_ERROR_INVALID_VALUE;
  return (props->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0
             ? CUDA_SUCCESS
             : CUDA_ERROR_NOT_SUPPORTED;
}

uint64_t* number(Pool* pool, int attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return &pool->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return &pool->used_high;
    default:
      return nullptr;
  }
}

bool is_flag(int attribute) {
  return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
         attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

}  // namespace

SIM_API CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* props) {
  SIM_UNSAFE_CALL(cuMemPoolCreate);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = check(props)) return refused;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  *out = driver.pools.create(*props)->handle;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  SIM_UNSAFE_CALL(cuMemPoolDestroy);
  sim::Pools& pools = Driver::get().pools;
  const Guard guard(Driver::get().lock());
  Pool* pool = pools.find(handle);
  return pool != nullptr && pools.destroy(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuMemPoolGetAttribute(CUmemoryPool handle, int attribute, void* value) {
  SIM_UNSAFE_CALL(cuMemPoolGetAttribute);
  const Guard guard(Driver::get().lock());
  Pool* pool = Driver::get().pools.find(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (is_flag(attribute)) {
    *static_cast<int*>(value) = pool->flag[attribute - 1];
    return CUDA_SUCCESS;
  }
  const uint64_t* place = number(pool, attribute);
  if (place == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<uint64_t*>(value) = *place;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPoolSetAttribute(CUmemoryPool handle, int attribute, void* value) {
  SIM_UNSAFE_CALL(cuMemPoolSetAttribute);
  const Guard guard(Driver::get().lock());
  Pool* pool = Driver::get().pools.find(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (is_flag(attribute)) {
    // Only the first is followed: without an event, another stream's frees are not taken before a
    // wait.
    pool->flag[attribute - 1] = *static_cast<const int*>(value);
    return CUDA_SUCCESS;
  }
  uint64_t* place = number(pool, attribute);
  if (place == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t wanted = *static_cast<const uint64_t*>(value);
  if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    *place = wanted;
    return CUDA_SUCCESS;
  }
  // A high mark starts again from what there is.
  const uint64_t* current = number(pool, attribute - 1);
  if (wanted != 0 || (attribute != CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH &&
                      attribute != CU_MEMPOOL_ATTR_USED_MEM_HIGH))
    return CUDA_ERROR_INVALID_VALUE;
  *place = *current;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* all, size_t count) {
  SIM_UNSAFE_CALL(cuMemPoolSetAccess);
  if (all == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  Pool* pool = driver.pools.find(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const CUmemAccessDesc& one = all[i];
    if (one.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (!driver.valid(one.location.id)) return CUDA_ERROR_INVALID_DEVICE;
    const bool own = sim::device_of(pool->props.location) == one.location.id;
    if ((one.flags != 0 && one.flags != 3) || (own && one.flags == 0))
      return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i)
    pool->access[all[i].location.id] = static_cast<uint8_t>(all[i].flags);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPoolGetAccess(int* flags, CUmemoryPool handle, CUmemLocation* where) {
  SIM_UNSAFE_CALL(cuMemPoolGetAccess);
  if (flags == nullptr || where == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = sim::check_location(*where)) return refused;
  const Guard guard(Driver::get().lock());
  const Pool* pool = Driver::get().pools.find(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool host = sim::device_of(pool->props.location) < 0;
  *flags = where->type == CU_MEM_LOCATION_TYPE_DEVICE ? pool->access[where->id] : (host ? 3 : 0);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice dev) {
  SIM_CALL(cuDeviceGetDefaultMemPool);
  const CUmemLocation where = device(dev);
  return get(out, &where, CU_MEM_ALLOCATION_TYPE_PINNED, false);
}
SIM_API CUresult cuDeviceGetMemPool(CUmemoryPool* out, CUdevice dev) {
  SIM_CALL(cuDeviceGetMemPool);
  const CUmemLocation where = device(dev);
  return get(out, &where, CU_MEM_ALLOCATION_TYPE_PINNED, true);
}
SIM_API CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  SIM_CALL(cuDeviceSetMemPool);
  const CUmemLocation where = device(dev);
  return set(&where, CU_MEM_ALLOCATION_TYPE_PINNED, pool);
}
SIM_API CUresult cuMemGetDefaultMemPool(CUmemoryPool* out, CUmemLocation* where, int type) {
  SIM_CALL(cuMemGetDefaultMemPool);
  return get(out, where, type, false);
}
SIM_API CUresult cuMemGetMemPool(CUmemoryPool* out, CUmemLocation* where, int type) {
  SIM_CALL(cuMemGetMemPool);
  return get(out, where, type, true);
}
SIM_API CUresult cuMemSetMemPool(CUmemLocation* where, int type, CUmemoryPool pool) {
  SIM_CALL(cuMemSetMemPool);
  return set(where, type, pool);
}
