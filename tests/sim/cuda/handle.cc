// Physical memory behind handles: create, release, retain, describe, export and import.
// Memory on the host costs the device nothing. Only POSIX file descriptors are exported; one holds
// the memory like a process does, until every copy of it is closed.
#include "sim/cuda/driver.h"

using sim::Block;
using sim::Driver;
using sim::Guard;
using sim::kPage;
using sim::ObjectKind;

namespace {

CUresult check(const CUmemAllocationProp* prop) {
  if (prop == nullptr || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = sim::check_location(prop->location)) return refused;
  return (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0
             ? CUDA_SUCCESS
             : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

SIM_API CUresult cuMemGetAllocationGranularity(size_t* out, const CUmemAllocationProp* prop,
                                               int option) {
  SIM_CALL(cuMemGetAllocationGranularity);
  if (out == nullptr || (option != 0 && option != 1)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = check(prop)) return refused;
  *out = kPage;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes,
                             const CUmemAllocationProp* prop, unsigned long long flags) {
  SIM_CALL(cuMemCreate);
  if (out == nullptr || bytes == 0 || bytes % kPage != 0 || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = check(prop)) return refused;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  const CUdevice dev = sim::device_of(prop->location);
  sim::Physical physical;
  if (!driver.account().take(dev >= 0 ? driver.physical(dev) : -1, bytes, &physical))
    return CUDA_ERROR_OUT_OF_MEMORY;
  *out = driver.vmm.add(physical, *prop)->handle;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  SIM_CALL(cuMemRelease);
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  Block* block = driver.vmm.find(handle);
  if (block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  driver.vmm.release(block);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address) {
  SIM_CALL(cuMemRetainAllocationHandle);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  uint64_t start = 0;
  sim::Mapping* mapping = driver.vmm.mapping_at(reinterpret_cast<uintptr_t>(address), &start);
  if (mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ++mapping->block->references;
  *out = mapping->block->handle;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out,
                                                        CUmemGenericAllocationHandle handle) {
  SIM_CALL(cuMemGetAllocationPropertiesFromHandle);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  const Block* block = driver.vmm.find(handle);
  if (block == nullptr || block->multicast != nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = block->prop;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                              int type, unsigned long long flags) {
  SIM_CALL(cuMemExportToShareableHandle);
  if (out == nullptr || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  Block* block = driver.vmm.find(handle);
  if (block == nullptr || (block->prop.requestedHandleTypes & type) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  const ObjectKind kind =
      block->multicast != nullptr ? ObjectKind::kMulticast : ObjectKind::kMemory;
  const int fd = driver.export_memory(&block->physical, kind, block->prop.location);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(out) = fd;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                                int type) {
  SIM_CALL(cuMemImportFromShareableHandle);
  if (out == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  const auto fd = static_cast<int>(reinterpret_cast<intptr_t>(os_handle));
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = type;
  sim::Physical physical;
  if (driver.account().import(fd, ObjectKind::kMulticast, &physical)) {
    Block* block = driver.vmm.add(physical, prop);
    block->multicast = std::make_unique<sim::Multicast>();
    block->multicast->prop.size = physical.bytes;
    *out = block->handle;
    return CUDA_SUCCESS;
  }
  if (!driver.account().import(fd, ObjectKind::kMemory, &physical)) return CUDA_ERROR_INVALID_VALUE;
  prop.location = driver.location_of(physical);
  if (prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE && prop.location.id < 0) {
    driver.account().drop(&physical);
    return CUDA_ERROR_INVALID_DEVICE;
  }
  *out = driver.vmm.add(physical, prop)->handle;
  return CUDA_SUCCESS;
}
