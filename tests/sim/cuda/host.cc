// Host memory, copies and fills of the simulated driver.
// Host memory comes from malloc and costs the device nothing. Copies and fills check that every
// device byte lies inside one allocation that this device may access, and move nothing.
#include <cstdlib>

#include "sim/cuda/driver.h"

using sim::Driver;
using sim::Found;
using sim::Guard;

namespace {

CUresult allocate_host(void** out, size_t bytes) {
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = sim::usable(sim::current())) return refused;
  void* memory = nullptr;
  if (posix_memalign(&memory, 4096, bytes) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const Guard guard(Driver::get().lock());
  Driver::get().host_allocations[memory] = {bytes, sim::current()->device};
  Driver::get().account().note(sim::current()->device, &sim::ProcessDevice::pinned_bytes,
                               static_cast<int64_t>(bytes));
  *out = memory;
  return CUDA_SUCCESS;
}

CUresult register_host(void* memory, size_t bytes) {
  if (memory == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = sim::usable(sim::current())) return refused;
  const Guard guard(Driver::get().lock());
  const bool added = Driver::get().host_registrations.emplace(memory, bytes).second;
  return added ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult check(CUdeviceptr address, size_t bytes) {
  if (const CUresult refused = sim::usable(sim::current())) return refused;
  if (bytes == 0) return CUDA_SUCCESS;
  const Guard guard(Driver::get().lock());
  Found found;
  if (!Driver::get().find(address, &found) || !found.accessible) return CUDA_ERROR_INVALID_VALUE;
  return bytes <= found.base + found.bytes - address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_both(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  const CUresult result = check(to, bytes);
  return result != CUDA_SUCCESS ? result : check(from, bytes);
}

}  // namespace

SIM_API CUresult cuMemAllocHost_v2(void** out, size_t bytes) {
  SIM_CALL(cuMemAllocHost_v2);
  return allocate_host(out, bytes);
}
SIM_API CUresult cuMemAllocHost(void** out, unsigned bytes) {
  SIM_CALL(cuMemAllocHost);
  return allocate_host(out, bytes);
}
SIM_API CUresult cuMemHostAlloc(void** out, size_t bytes, unsigned /*flags*/) {
  SIM_CALL(cuMemHostAlloc);
  return allocate_host(out, bytes);
}
SIM_API CUresult cuMemFreeHost(void* memory) {
  SIM_CALL(cuMemFreeHost);
  {
    const Guard guard(Driver::get().lock());
    auto& allocations = Driver::get().host_allocations;
    const auto found = allocations.find(memory);
    if (found == allocations.end()) return CUDA_ERROR_INVALID_VALUE;
    Driver::get().account().note(found->second.device, &sim::ProcessDevice::pinned_bytes,
                                 -static_cast<int64_t>(found->second.bytes));
    allocations.erase(found);
  }
  std::free(memory);
  return CUDA_SUCCESS;
}
SIM_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* memory, unsigned /*flags*/) {
  SIM_CALL(cuMemHostGetDevicePointer_v2);
  if (out == nullptr || memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<uintptr_t>(memory);
  return CUDA_SUCCESS;
}
SIM_API CUresult cuMemHostRegister_v2(void* memory, size_t bytes, unsigned /*flags*/) {
  SIM_CALL(cuMemHostRegister_v2);
  return register_host(memory, bytes);
}
SIM_API CUresult cuMemHostRegister(void* memory, size_t bytes, unsigned /*flags*/) {
  SIM_CALL(cuMemHostRegister);
  return register_host(memory, bytes);
}
SIM_API CUresult cuMemHostUnregister(void* memory) {
  SIM_CALL(cuMemHostUnregister);
  const Guard guard(Driver::get().lock());
  return Driver::get().host_registrations.erase(memory) != 0
             ? CUDA_SUCCESS
             : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

SIM_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* /*from*/, size_t bytes) {
  SIM_CALL(cuMemcpyHtoD_v2);
  return check(to, bytes);
}
SIM_API CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void* /*from*/, size_t bytes) {
  SIM_CALL(cuMemcpyHtoD_v2_ptds);
  return check(to, bytes);
}
SIM_API CUresult cuMemcpyHtoD(CUdeviceptr_v1 to, const void* /*from*/, unsigned bytes) {
  SIM_CALL(cuMemcpyHtoD);
  return check(to, bytes);
}
SIM_API CUresult cuMemcpyDtoH_v2(void* /*to*/, CUdeviceptr from, size_t bytes) {
  SIM_CALL(cuMemcpyDtoH_v2);
  return check(from, bytes);
}
SIM_API CUresult cuMemcpyDtoH_v2_ptds(void* /*to*/, CUdeviceptr from, size_t bytes) {
  SIM_CALL(cuMemcpyDtoH_v2_ptds);
  return check(from, bytes);
}
SIM_API CUresult cuMemcpyDtoH(void* /*to*/, CUdeviceptr_v1 from, unsigned bytes) {
  SIM_CALL(cuMemcpyDtoH);
  return check(from, bytes);
}
SIM_API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  SIM_CALL(cuMemcpyDtoD_v2);
  return check_both(to, from, bytes);
}
SIM_API CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  SIM_CALL(cuMemcpyDtoD_v2_ptds);
  return check_both(to, from, bytes);
}
SIM_API CUresult cuMemcpyDtoD(CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned bytes) {
  SIM_CALL(cuMemcpyDtoD);
  return check_both(to, from, bytes);
}
SIM_API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char /*value*/, size_t count) {
  SIM_CALL(cuMemsetD8_v2);
  return check(to, count);
}
SIM_API CUresult cuMemsetD8_v2_ptds(CUdeviceptr to, unsigned char /*value*/, size_t count) {
  SIM_CALL(cuMemsetD8_v2_ptds);
  return check(to, count);
}
SIM_API CUresult cuMemsetD8(CUdeviceptr_v1 to, unsigned char /*value*/, unsigned count) {
  SIM_CALL(cuMemsetD8);
  return check(to, count);
}
