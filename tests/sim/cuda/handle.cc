// Physical memory behind handles: create, release, retain, describe, export and import.
// Memory on the host costs the device nothing. Only POSIX file descriptors are exported, dma-bufs
// too; one holds the memory like a process does, until every copy of it is closed.
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <vector>

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

// A descriptor that can be watched by epoll, as a dma-buf can, and holds the given ones: these are
// on their way in the socket. -1 if there are too many.
int as_dma_buf(const std::vector<int>& held) {
  constexpr size_t kMost = 253;  // SCM_MAX_FD
  int ends[2];
  if (held.size() > kMost || socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) != 0)
    return -1;
  const size_t bytes = held.size() * sizeof(int);
  alignas(cmsghdr) char space[CMSG_SPACE(kMost * sizeof(int))] = {};
  char byte = 0;
  iovec content = {.iov_base = &byte, .iov_len = 1};
  msghdr message = {};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = CMSG_SPACE(bytes);
  cmsghdr* const control = CMSG_FIRSTHDR(&message);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(bytes);
  std::memcpy(CMSG_DATA(control), held.data(), bytes);
  const bool sent = sendmsg(ends[1], &message, 0) == 1;
  close(ends[1]);
  if (!sent) close(ends[0]);
  return sent ? ends[0] : -1;
}

// The memory at an address, and how much of it follows.
sim::Physical* memory_at(Driver& driver, uint64_t address, CUmemLocation* location,
                         uint64_t* bytes) {
  uint64_t start = 0;
  if (sim::Mapping* const mapping = driver.vmm.mapping_at(address, &start)) {
    *location = mapping->block->prop.location;
    *bytes = start + mapping->bytes - address;
    return &mapping->block->physical;
  }
  sim::Found found;
  if (!driver.find(address, &found) || found.range == nullptr || !found.range->owns() ||
      found.managed) {
    return nullptr;
  }
  *bytes = found.base + found.bytes - address;
  return &found.range->physical;
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

// What is accepted follows cuda.h of CUDA 11.8, how long the memory is held nv-dmabuf.c of the open
// modules 535.261.03. Neither says which error a range with a gap returns.
SIM_API CUresult cuMemGetHandleForAddressRange(void* out, CUdeviceptr address, size_t bytes,
                                               int type, unsigned long long flags) {
  SIM_CALL(cuMemGetHandleForAddressRange);
  constexpr int kDmaBuf = 1;
  constexpr uint64_t kHostPage = 4096;
  if (out == nullptr || type != kDmaBuf || flags != 0 || bytes == 0 ||
      (address | bytes) % kHostPage != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  std::vector<int> pieces;
  CUresult result = CUDA_SUCCESS;
  for (uint64_t done = 0, length = 0; done < bytes && result == CUDA_SUCCESS; done += length) {
    CUmemLocation location = {};
    sim::Physical* const memory = memory_at(driver, address + done, &location, &length);
    const int piece =
        memory != nullptr ? driver.export_memory(memory, ObjectKind::kMemory, location) : -1;
    if (piece >= 0) pieces.push_back(piece);
    if (piece < 0)
      result = memory == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OPERATING_SYSTEM;
  }
  const int fd = result == CUDA_SUCCESS ? as_dma_buf(pieces) : -1;
  for (const int piece : pieces) close(piece);
  if (result == CUDA_SUCCESS && fd < 0) result = CUDA_ERROR_OPERATING_SYSTEM;
  if (result == CUDA_SUCCESS) *static_cast<int*>(out) = fd;
  return result;
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
