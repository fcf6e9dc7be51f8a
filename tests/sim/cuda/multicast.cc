// Multicast objects: no memory of their own, but what is bound to one is in use until it is unbound
// or the object goes. Binding wants the memory's device to have been added in this process. What
// other processes bind to a shared object stays their own affair.
#include "sim/cuda/driver.h"

using sim::Block;
using sim::Driver;
using sim::Guard;
using sim::kPage;
using sim::Multicast;

namespace {

// `device`: where the caller says that the memory is, or null.
CUresult bind(uint64_t handle, const CUdevice* device, uint64_t offset, Block* block,
              uint64_t block_offset, uint64_t bytes, uint64_t flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  sim::Vmm& vmm = Driver::get().vmm;
  Block* object = vmm.find(handle);
  if (object == nullptr || object->multicast == nullptr || block == nullptr ||
      block->multicast != nullptr || block->prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      bytes == 0 || (offset | block_offset | bytes) % kPage != 0)
    return CUDA_ERROR_INVALID_VALUE;
  Multicast& multicast = *object->multicast;
  const CUdevice dev = block->prop.location.id;
  if (device != nullptr && *device != dev) return CUDA_ERROR_INVALID_DEVICE;
  if (!multicast.has_device[dev] || block_offset > block->physical.bytes ||
      bytes > block->physical.bytes - block_offset || offset > multicast.prop.size ||
      bytes > multicast.prop.size - offset)
    return CUDA_ERROR_INVALID_VALUE;
  const auto after = multicast.bindings.lower_bound({dev, offset});
  if (after != multicast.bindings.end() && after->first.first == dev &&
      after->first.second < offset + bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (after != multicast.bindings.begin()) {
    const auto before = std::prev(after);
    if (before->first.first == dev && before->first.second + before->second.bytes > offset)
      return CUDA_ERROR_INVALID_VALUE;
  }
  multicast.bindings[{dev, offset}] = {bytes, block};
  vmm.begin_use(block);
  return CUDA_SUCCESS;
}

CUresult bind_address(uint64_t handle, const CUdevice* device, uint64_t offset, uint64_t address,
                      uint64_t bytes, uint64_t flags) {
  const Guard guard(Driver::get().lock());
  uint64_t start = 0;
  const sim::Mapping* mapping = Driver::get().vmm.mapping_at(address, &start);
  if (mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return bind(handle, device, offset, mapping->block, address - start, bytes, flags);
}

bool valid(const CUmulticastObjectProp* prop) {
  return prop != nullptr && prop->numDevices != 0 && prop->flags == 0;
}

}  // namespace

SIM_API CUresult cuMulticastGetGranularity(size_t* out, const CUmulticastObjectProp* prop,
                                           int option) {
  SIM_CALL(cuMulticastGetGranularity);
  if (out == nullptr || !valid(prop) || (option != 0 && option != 1))
    return CUDA_ERROR_INVALID_VALUE;
  *out = kPage;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMulticastCreate(CUmemGenericAllocationHandle* out,
                                   const CUmulticastObjectProp* prop) {
  SIM_CALL(cuMulticastCreate);
  if (out == nullptr || !valid(prop) || prop->size == 0 || prop->size % kPage != 0)
    return CUDA_ERROR_INVALID_VALUE;
  sim::Physical nothing;
  nothing.bytes = prop->size;
  CUmemAllocationProp shared = {};
  shared.requestedHandleTypes = static_cast<int>(prop->handleTypes);
  const Guard guard(Driver::get().lock());
  Block* block = Driver::get().vmm.add(nothing, shared);
  block->multicast = std::make_unique<Multicast>();
  block->multicast->prop = *prop;
  *out = block->handle;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice dev) {
  SIM_CALL(cuMulticastAddDevice);
  if (!Driver::get().valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const Guard guard(Driver::get().lock());
  Block* object = Driver::get().vmm.find(handle);
  if (object == nullptr || object->multicast == nullptr || object->multicast->has_device[dev])
    return CUDA_ERROR_INVALID_VALUE;
  object->multicast->has_device[dev] = true;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset,
                                    CUmemGenericAllocationHandle memory, size_t memory_offset,
                                    size_t bytes, unsigned long long flags) {
  SIM_CALL(cuMulticastBindMem);
  const Guard guard(Driver::get().lock());
  Block* const block = Driver::get().vmm.find(memory);
  return bind(handle, nullptr, offset, block, memory_offset, bytes, flags);
}

SIM_API CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle handle, CUdevice dev,
                                       size_t offset, CUmemGenericAllocationHandle memory,
                                       size_t memory_offset, size_t bytes,
                                       unsigned long long flags) {
  SIM_CALL(cuMulticastBindMem_v2);
  const Guard guard(Driver::get().lock());
  Block* const block = Driver::get().vmm.find(memory);
  return bind(handle, &dev, offset, block, memory_offset, bytes, flags);
}

SIM_API CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset,
                                     CUdeviceptr address, size_t bytes, unsigned long long flags) {
  SIM_CALL(cuMulticastBindAddr);
  return bind_address(handle, nullptr, offset, address, bytes, flags);
}

SIM_API CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle handle, CUdevice dev,
                                        size_t offset, CUdeviceptr address, size_t bytes,
                                        unsigned long long flags) {
  SIM_CALL(cuMulticastBindAddr_v2);
  return bind_address(handle, &dev, offset, address, bytes, flags);
}

SIM_API CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice dev, size_t offset,
                                   size_t bytes) {
  SIM_CALL(cuMulticastUnbind);
  if (!Driver::get().valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const Guard guard(Driver::get().lock());
  Block* object = Driver::get().vmm.find(handle);
  if (object == nullptr || object->multicast == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto& bindings = object->multicast->bindings;
  const auto found = bindings.find({dev, offset});
  if (found == bindings.end() || found->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
  Block* const block = found->second.block;
  bindings.erase(found);
  Driver::get().vmm.end_use(block);
  return CUDA_SUCCESS;
}
