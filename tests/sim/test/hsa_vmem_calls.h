// The calls of virtual memory management on the simulated HSA runtime, with the common arguments
// filled in. Results are those of the calls.
#pragma once

#include "sim/test/hsa_calls.h"

namespace simtest {

inline constexpr uint32_t kPinned = 1;

using Handle = sim::VmemHandle;

inline int vmem_create(const Gpu& gpu, size_t bytes, Handle* out) {
  return hsa<int(hsa_amd_memory_pool_t, size_t, uint32_t, uint64_t, Handle*)>(
      "hsa_amd_vmem_handle_create")(gpu.coarse, bytes, kPinned, 0, out);
}
inline int vmem_release(Handle handle) {
  return hsa<int(Handle)>("hsa_amd_vmem_handle_release")(handle);
}
inline int vmem_reserve(void** out, size_t bytes) {
  return hsa<int(void**, size_t, uint64_t, uint64_t)>("hsa_amd_vmem_address_reserve")(out, bytes, 0,
                                                                                      0);
}
inline int vmem_unreserve(void* address, size_t bytes) {
  return hsa<int(void*, size_t)>("hsa_amd_vmem_address_free")(address, bytes);
}
inline int vmem_map(void* address, size_t bytes, Handle handle) {
  return hsa<int(void*, size_t, size_t, Handle, uint64_t)>("hsa_amd_vmem_map")(address, bytes, 0,
                                                                               handle, 0);
}
inline int vmem_unmap(void* address, size_t bytes) {
  return hsa<int(void*, size_t)>("hsa_amd_vmem_unmap")(address, bytes);
}
inline int vmem_retain(Handle* out, void* address) {
  return hsa<int(Handle*, void*)>("hsa_amd_vmem_retain_alloc_handle")(out, address);
}

}  // namespace simtest
