// Device-memory calls of the simulated driver: allocate, free, ask.
// Managed memory counts in full as physical memory at the call, although the real driver places its
// pages on first touch: the simulator answers "how much could it come to". With
// FRACGPU_SIM_MANAGED=late it counts when it is prefetched to the device. The oldest calls take
// 32-bit sizes and give 32-bit pointers.
#include "sim/cuda/capture_table.h"
#include "sim/cuda/driver.h"

using sim::Context;
using sim::Driver;
using sim::Found;
using sim::Guard;

namespace {

constexpr uint64_t kPitchAlignment = 512;

CUresult allocate(uint64_t bytes, bool low, bool managed, uint64_t* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  SIM_CONTEXT(context);
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  if (const CUresult refused = sim::refused_as_unsafe()) return refused;
  return driver.allocate(context, bytes, low, managed, address);
}

// All of the allocation, to the device of its context alone.
CUresult prefetch(uint64_t address, CUdevice device) {
  SIM_CONTEXT(context);
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  Found found;
  if (!driver.find(address, &found) || !found.managed || found.ordinal != device)
    return CUDA_ERROR_INVALID_VALUE;
  return driver.prefetch(found.range) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult free_memory(uint64_t address) {
  if (const CUresult refused = sim::usable(sim::current())) return refused;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  if (const CUresult refused = sim::refused_as_unsafe()) return refused;
  return driver.free(address);
}

CUresult allocate_pitch(uint64_t width, uint64_t height, unsigned element, bool low,
                        uint64_t* address, uint64_t* pitch) {
  if (width == 0 || height == 0 || (element != 4 && element != 8 && element != 16))
    return CUDA_ERROR_INVALID_VALUE;
  const uint64_t row = (width + kPitchAlignment - 1) / kPitchAlignment * kPitchAlignment;
  uint64_t bytes = 0;
  if (row < width || __builtin_mul_overflow(row, height, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = allocate(bytes, low, false, address);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

CUresult range_of(uint64_t address, Found* found) {
  if (const CUresult refused = sim::usable(sim::current())) return refused;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  return driver.find(address, found) ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace

SIM_API CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  SIM_CALL(cuMemAlloc_v2);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  const CUresult result = allocate(bytes, false, false, &address);
  if (result == CUDA_SUCCESS) *out = address;
  return result;
}

SIM_API CUresult cuMemAlloc(CUdeviceptr_v1* out, unsigned bytes) {
  SIM_CALL(cuMemAlloc);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  const CUresult result = allocate(bytes, true, false, &address);
  if (result == CUDA_SUCCESS) *out = static_cast<CUdeviceptr_v1>(address);
  return result;
}

SIM_API CUresult cuMemFree_v2(CUdeviceptr address) {
  SIM_CALL(cuMemFree_v2);
  return free_memory(address);
}

SIM_API CUresult cuMemFree(CUdeviceptr_v1 address) {
  SIM_CALL(cuMemFree);
  return free_memory(address);
}

SIM_API CUresult cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height,
                                    unsigned element) {
  SIM_CALL(cuMemAllocPitch_v2);
  if (out == nullptr || pitch == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0, row = 0;
  const CUresult result = allocate_pitch(width, height, element, false, &address, &row);
  if (result == CUDA_SUCCESS) {
    *out = address;
    *pitch = row;
  }
  return result;
}

SIM_API CUresult cuMemAllocPitch(CUdeviceptr_v1* out, unsigned* pitch, unsigned width,
                                 unsigned height, unsigned element) {
  SIM_CALL(cuMemAllocPitch);
  if (out == nullptr || pitch == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0, row = 0;
  const CUresult result = allocate_pitch(width, height, element, true, &address, &row);
  if (result == CUDA_SUCCESS) {
    *out = static_cast<CUdeviceptr_v1>(address);
    *pitch = static_cast<unsigned>(row);
  }
  return result;
}

SIM_API CUresult cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned flags) {
  SIM_CALL(cuMemAllocManaged);
  if (out == nullptr || (flags != 1 && flags != 2)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  const CUresult result = allocate(bytes, false, true, &address);
  if (result == CUDA_SUCCESS) *out = address;
  return result;
}

SIM_API CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t /*bytes*/, CUdevice device,
                                    CUstream /*stream*/) {
  SIM_CALL(cuMemPrefetchAsync);
  return prefetch(pointer, device);
}
SIM_API CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr pointer, size_t /*bytes*/, CUdevice device,
                                         CUstream /*stream*/) {
  SIM_CALL(cuMemPrefetchAsync_ptsz);
  return prefetch(pointer, device);
}

SIM_API CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  SIM_UNSAFE_CALL(cuMemGetInfo_v2);
  if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_CONTEXT(context);
  sim::Account& account = Driver::get().account();
  *free = account.free_bytes(context->device);
  *total = account.total(context->device);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemGetInfo(unsigned* free, unsigned* total) {
  SIM_UNSAFE_CALL(cuMemGetInfo);
  if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_CONTEXT(context);
  sim::Account& account = Driver::get().account();
  const auto clamp = [](uint64_t bytes) {
    return bytes > UINT32_MAX ? UINT32_MAX : static_cast<unsigned>(bytes);
  };
  *free = clamp(account.free_bytes(context->device));
  *total = clamp(account.total(context->device));
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  SIM_CALL(cuMemGetAddressRange_v2);
  Found found;
  if (const CUresult result = range_of(address, &found)) return result;
  if (base != nullptr) *base = found.base;
  if (size != nullptr) *size = found.bytes;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemGetAddressRange(CUdeviceptr_v1* base, unsigned* size,
                                      CUdeviceptr_v1 address) {
  SIM_CALL(cuMemGetAddressRange);
  Found found;
  if (const CUresult result = range_of(address, &found)) return result;
  if (base != nullptr) *base = static_cast<CUdeviceptr_v1>(found.base);
  if (size != nullptr) *size = static_cast<unsigned>(found.bytes);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuPointerGetAttribute(void* data, int attribute, CUdeviceptr address) {
  SIM_CALL(cuPointerGetAttribute);
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  Found found;
  if (!driver.find(address, &found)) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case 1:
      *static_cast<CUcontext*>(data) = sim::handle(found.context);
      break;
    case 2:
      *static_cast<unsigned*>(data) = CU_MEMORYTYPE_DEVICE;
      break;
    case 3:
      *static_cast<CUdeviceptr*>(data) = address;
      break;
    case 7:
      *static_cast<unsigned long long*>(data) = found.id;
      break;
    case 8:
      *static_cast<unsigned*>(data) = found.managed ? 1 : 0;
      break;
    case 9:
      *static_cast<int*>(data) = found.ordinal;
      break;
    case 10:
      *static_cast<unsigned*>(data) = found.range != nullptr && found.range->owns();
      break;
    case 11:
      *static_cast<CUdeviceptr*>(data) = found.base;
      break;
    case 12:
      *static_cast<size_t*>(data) = found.bytes;
      break;
    case 13:
      *static_cast<unsigned*>(data) = 1;
      break;
    case 17:
      *static_cast<CUmemoryPool*>(data) = found.pool;
      break;
    case 18:
      *static_cast<size_t*>(data) = found.chunk != 0 ? found.chunk : found.bytes;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
