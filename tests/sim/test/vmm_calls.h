// The calls of virtual memory management that several tests make, with the common arguments filled
// in. Each opens its symbol anew, because the library may only be loaded in children.
// Results are those of the calls.
#pragma once

#include "sim/cuda/memory_abi.h"
#include "sim/test/support.h"

namespace simtest {

using Handle = unsigned long long;
using Pointer = unsigned long long;

inline CUmemAllocationProp prop_of(int type = CU_MEM_LOCATION_TYPE_DEVICE, int id = 0) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location = {type, id};
  return prop;
}

inline int vmm_create(Handle* out, size_t bytes, const CUmemAllocationProp& prop = prop_of()) {
  return cuda<int(Handle*, size_t, const CUmemAllocationProp*, uint64_t)>("cuMemCreate")(out, bytes,
                                                                                         &prop, 0);
}
inline int vmm_release(Handle handle) {
  return cuda<int(Handle)>("cuMemRelease")(handle);
}
inline int vmm_reserve(Pointer* out, size_t bytes) {
  return cuda<int(Pointer*, size_t, size_t, Pointer, uint64_t)>("cuMemAddressReserve")(out, bytes,
                                                                                       0, 0, 0);
}
inline int vmm_unreserve(Pointer address, size_t bytes) {
  return cuda<int(Pointer, size_t)>("cuMemAddressFree")(address, bytes);
}
inline int vmm_map(Pointer address, size_t bytes, Handle handle) {
  return cuda<int(Pointer, size_t, size_t, Handle, uint64_t)>("cuMemMap")(address, bytes, 0, handle,
                                                                          0);
}
inline int vmm_unmap(Pointer address, size_t bytes) {
  return cuda<int(Pointer, size_t)>("cuMemUnmap")(address, bytes);
}
inline int vmm_retain(Handle* out, Pointer address) {
  return cuda<int(Handle*, void*)>("cuMemRetainAllocationHandle")(out,
                                                                  reinterpret_cast<void*>(address));
}
inline int vmm_export(int* fd, Handle handle) {
  return cuda<int(void*, Handle, int, uint64_t)>("cuMemExportToShareableHandle")(fd, handle, 1, 0);
}
inline int vmm_import(Handle* out, int fd) {
  return cuda<int(Handle*, void*, int)>("cuMemImportFromShareableHandle")(
      out, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), 1);
}

}  // namespace simtest
