// Reserved addresses and what is mapped to them: reserve, free, map, unmap, access.
// A hint for the address is not followed. Mapping at an offset into a handle is refused, as the
// vendor documents. Access is kept per mapping and device, and copies and fills ask for it.
#include "sim/cuda/driver.h"

using sim::Block;
using sim::Driver;
using sim::Guard;
using sim::kPage;

namespace {

bool pages(uint64_t address, uint64_t bytes) {
  return bytes != 0 && bytes % kPage == 0 && address % kPage == 0 && address + bytes > address;
}

}  // namespace

SIM_API CUresult cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t alignment,
                                     CUdeviceptr /*hint*/, unsigned long long flags) {
  SIM_CALL(cuMemAddressReserve);
  if (out == nullptr || !pages(0, bytes) || flags != 0 || (alignment & (alignment - 1)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  const Guard guard(Driver::get().lock());
  const CUresult result = Driver::get().vmm.reserve(bytes, alignment, &address);
  if (result == CUDA_SUCCESS) *out = address;
  return result;
}

SIM_API CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  SIM_CALL(cuMemAddressFree);
  const Guard guard(Driver::get().lock());
  return Driver::get().vmm.unreserve(address, bytes);
}

SIM_API CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags) {
  SIM_CALL(cuMemMap);
  if (!pages(address, bytes) || offset != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  sim::Vmm& vmm = Driver::get().vmm;
  const Guard guard(Driver::get().lock());
  Block* block = vmm.find(handle);
  if (block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t size =
      block->multicast != nullptr ? block->multicast->prop.size : block->physical.bytes;
  return bytes <= size ? vmm.map(address, bytes, block) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  SIM_CALL(cuMemUnmap);
  if (!pages(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  return Driver::get().vmm.unmap(address, bytes);
}

SIM_API CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access,
                                size_t count) {
  SIM_CALL(cuMemSetAccess);
  if (!pages(address, bytes) || access == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  for (size_t i = 0; i < count; ++i) {
    if (const CUresult refused = sim::check_location(access[i].location)) return refused;
    if (access[i].flags != 0 && access[i].flags != 1 && access[i].flags != 3)
      return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    const CUresult result =
        Driver::get().vmm.set_access(address, bytes, access[i].location, access[i].flags);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                                CUdeviceptr address) {
  SIM_CALL(cuMemGetAccess);
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = sim::check_location(*location)) return refused;
  const Guard guard(Driver::get().lock());
  uint64_t start = 0;
  const sim::Mapping* mapping = Driver::get().vmm.mapping_at(address, &start);
  if (mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? mapping->access[location->id]
                                                         : mapping->host_access;
  return CUDA_SUCCESS;
}
