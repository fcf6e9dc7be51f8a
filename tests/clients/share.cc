// Exports and imports; see share.h.
#include "share.h"

#include <unistd.h>

#include "token.h"

namespace client {
namespace {

int map(Shared* shared) {
  int rc =
      call("cuMemAddressReserve", &shared->address, shared->bytes, size_t{0}, CUdeviceptr{0}, 0ull);
  return rc != 0
             ? rc
             : call("cuMemMap", shared->address, shared->bytes, size_t{0}, shared->handle, 0ull);
}

void* as_handle(int fd) {
  return reinterpret_cast<void*>(static_cast<intptr_t>(fd));
}

int export_ipc(Shared* shared, std::string* token) {
  CUipcMemHandle handle;
  if (const int rc = call("cuMemAlloc_v2", &shared->address, shared->bytes)) return rc;
  const int rc = call("cuIpcGetMemHandle", &handle, shared->address + shared->within);
  *token = hex(handle.reserved);
  return rc;
}

int export_vmm(Shared* shared, std::string* token) {
  CUmemAllocationProp properties = {};
  properties.type = 1;                  // CU_MEM_ALLOCATION_TYPE_PINNED
  properties.requestedHandleTypes = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  properties.location = {.type = kLocationDevice, .id = 0};
  const CUmemAllocationProp* wanted = &properties;
  if (const int rc = call("cuMemCreate", &shared->handle, shared->bytes, wanted, 0ull)) return rc;
  void* out = &shared->fd;
  if (const int rc = call("cuMemExportToShareableHandle", out, shared->handle, 1, 0ull)) return rc;
  *token = place_of(shared->fd);
  return map(shared);
}

// Mapped as two pieces, without a handle.
int map_two(Shared* shared) {
  CUmemAllocationProp properties = {};
  properties.type = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
  properties.location = {.type = kLocationDevice, .id = 0};
  const CUmemAllocationProp* wanted = &properties;
  const size_t half = shared->bytes / 2;
  int rc =
      call("cuMemAddressReserve", &shared->address, shared->bytes, size_t{0}, CUdeviceptr{0}, 0ull);
  for (size_t at = 0; rc == 0 && at < shared->bytes; at += half) {
    CUmemGenericAllocationHandle handle = 0;
    rc = call("cuMemCreate", &handle, half, wanted, 0ull);
    if (rc == 0) rc = call("cuMemMap", shared->address + at, half, size_t{0}, handle, 0ull);
    if (rc == 0) rc = call("cuMemRelease", handle);
  }
  return rc;
}

// A dma-buf.
int export_range(Shared* shared, std::string* token) {
  int rc = shared->way == Way::mapped_range
               ? map_two(shared)
               : call("cuMemAlloc_v2", &shared->address, shared->bytes);
  if (rc != 0) return rc;
  constexpr int kDmaBuf = 1;  // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
  void* out = &shared->fd;
  rc = call("cuMemGetHandleForAddressRange", out, shared->address + shared->within,
            shared->bytes - shared->within, kDmaBuf, 0ull);
  *token = place_of(shared->fd);
  return rc;
}

int export_pool(Shared* shared, std::string* token) {
  CUmemPoolProps properties = {};
  properties.allocType = 1;    // CU_MEM_ALLOCATION_TYPE_PINNED
  properties.handleTypes = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  properties.location = {.type = kLocationDevice, .id = 0};
  const CUmemPoolProps* wanted = &properties;
  if (const int rc = call("cuMemPoolCreate", &shared->pool, wanted)) return rc;
  const CUstream stream = nullptr;
  int rc = call("cuMemAllocFromPoolAsync", &shared->address, shared->bytes, shared->pool, stream);
  if (rc != 0) {
    call("cuMemPoolDestroy", shared->pool);
    return rc;
  }
  void* out = &shared->fd;
  if ((rc = call("cuMemPoolExportToShareableHandle", out, shared->pool, 1, 0ull))) return rc;
  CUmemPoolPtrExportData data;
  rc = call("cuMemPoolExportPointer", &data, shared->address);
  *token = place_of(shared->fd) + ":" + hex(data.reserved);
  return rc;
}

int import_pool(int fd, const std::string& pointer, Shared* shared) {
  int rc = call("cuMemPoolImportFromShareableHandle", &shared->pool, as_handle(fd), 1, 0ull);
  if (rc != 0) return rc;
  CUmemPoolPtrExportData data;
  read_hex(pointer, data.reserved);
  rc = call("cuMemPoolImportPointer", &shared->address, shared->pool, &data);
  if (rc != 0) call("cuMemPoolDestroy", shared->pool);
  return rc;
}

int import_ipc(const std::string& token, Shared* shared) {
  CUipcMemHandle handle;
  read_hex(token, handle.reserved);
  return call("cuIpcOpenMemHandle_v2", &shared->address, handle, 1u);
}

}  // namespace

int export_memory(Way way, Shared* shared, std::string* token) {
  shared->way = way;
  return way == Way::ipc          ? export_ipc(shared, token)
         : way == Way::descriptor ? export_vmm(shared, token)
         : way == Way::pool       ? export_pool(shared, token)
                                  : export_range(shared, token);
}

int import_memory(const std::string& token, Shared* shared, bool mapped) {
  shared->imported = true;
  const size_t colon = token.find(':');
  if (colon == token.npos) return import_ipc(token, shared);
  const size_t second = token.find(':', colon + 1);
  const int fd = take_descriptor(token);
  int rc = 0;
  if (second == token.npos) {
    shared->way = Way::descriptor;
    rc = call("cuMemImportFromShareableHandle", &shared->handle, as_handle(fd), 1);
    if (rc == 0 && mapped) rc = map(shared);
  } else {
    shared->way = Way::pool;
    rc = import_pool(fd, token.substr(second + 1), shared);
  }
  close(fd);
  return rc;
}

int let_go(const Shared& shared) {
  const bool is_range = shared.way == Way::range || shared.way == Way::mapped_range;
  if (shared.fd >= 0 && !is_range) close(shared.fd);
  if (shared.way == Way::descriptor || shared.way == Way::mapped_range) {
    int rc = 0;
    if (shared.address != 0) {
      rc = call("cuMemUnmap", shared.address, shared.bytes);
      if (rc == 0) rc = call("cuMemAddressFree", shared.address, shared.bytes);
    }
    return rc != 0 || is_range ? rc : call("cuMemRelease", shared.handle);
  }
  if (shared.way == Way::pool) {
    const int rc = call("cuMemFree_v2", shared.address);
    return rc != 0 || shared.imported ? rc : call("cuMemPoolTrimTo", shared.pool, size_t{0});
  }
  return shared.imported ? call("cuIpcCloseMemHandle", shared.address)
                         : call("cuMemFree_v2", shared.address);
}

}  // namespace client
