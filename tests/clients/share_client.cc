// Shares device memory with other processes: by IPC handle or by descriptor.
//
//   share_client export BYTES       prints "token HANDLE", the handle in hexadecimal
//   share_client export-vmm BYTES   prints "token PID:FD", a descriptor to be taken from there
//   share_client export-pool BYTES  prints "token PID:FD:POINTER", of a pool and memory of it
//   share_client import TOKEN       opens it, prints "open rc=N"
// Then one command a line: "free" lets go of the memory, "freeptr" calls cuMemFree on it, "alloc
// BYTES" allocates and keeps, "look" makes the library read the truth. Each answers "COMMAND rc=N".
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>

#include "tests/clients/random/actor.h"

namespace client {
namespace {

constexpr size_t kPage = 2u << 20;

// What this process has: linear memory, an IPC import or memory of a pool by its address; VMM by
// handle and mapping.
struct Shared {
  bool vmm = false, imported = false;
  CUmemoryPool pool = nullptr;
  CUdeviceptr address = 0;
  size_t bytes = 0;
  CUmemGenericAllocationHandle handle = 0;
};

int map(Shared* shared) {
  int rc =
      call("cuMemAddressReserve", &shared->address, shared->bytes, size_t{0}, CUdeviceptr{0}, 0ull);
  return rc != 0
             ? rc
             : call("cuMemMap", shared->address, shared->bytes, size_t{0}, shared->handle, 0ull);
}

template <typename Bytes>
void print_hex(const Bytes& bytes) {
  for (const auto byte : bytes) std::printf("%02x", static_cast<unsigned char>(byte));
}

template <typename Bytes>
void read_hex(const std::string& text, Bytes& bytes) {
  size_t i = 0;
  for (auto& byte : bytes) {
    byte =
        static_cast<std::decay_t<decltype(byte)>>(std::stoi(text.substr(2 * i++, 2), nullptr, 16));
  }
}

// A descriptor of another process.
int take_descriptor(int pid, int their_fd) {
  const auto process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  const auto fd = static_cast<int>(syscall(SYS_pidfd_getfd, process, their_fd, 0));
  close(process);
  return fd;
}

void* as_handle(int fd) {
  return reinterpret_cast<void*>(static_cast<intptr_t>(fd));
}

int export_ipc(Shared* shared) {
  CUipcMemHandle handle;
  if (const int rc = call("cuMemAlloc_v2", &shared->address, shared->bytes)) return rc;
  if (const int rc = call("cuIpcGetMemHandle", &handle, shared->address)) return rc;
  std::printf("token ");
  print_hex(handle.reserved);
  std::printf("\n");
  return 0;
}

int export_vmm(Shared* shared) {
  shared->vmm = true;
  CUmemAllocationProp properties = {};
  properties.type = 1;                  // CU_MEM_ALLOCATION_TYPE_PINNED
  properties.requestedHandleTypes = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  properties.location = {.type = kLocationDevice, .id = 0};
  const CUmemAllocationProp* wanted = &properties;
  if (const int rc = call("cuMemCreate", &shared->handle, shared->bytes, wanted, 0ull)) return rc;
  int fd = -1;
  void* out = &fd;
  if (const int rc = call("cuMemExportToShareableHandle", out, shared->handle, 1, 0ull)) return rc;
  if (const int rc = map(shared)) return rc;
  std::printf("token %d:%d\n", getpid(), fd);
  return 0;
}

int export_pool(Shared* shared) {
  CUmemPoolProps properties = {};
  properties.allocType = 1;    // CU_MEM_ALLOCATION_TYPE_PINNED
  properties.handleTypes = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  properties.location = {.type = kLocationDevice, .id = 0};
  const CUmemPoolProps* wanted = &properties;
  if (const int rc = call("cuMemPoolCreate", &shared->pool, wanted)) return rc;
  const CUstream stream = nullptr;
  int rc = call("cuMemAllocFromPoolAsync", &shared->address, shared->bytes, shared->pool, stream);
  if (rc != 0) return rc;
  int fd = -1;
  void* out = &fd;
  if ((rc = call("cuMemPoolExportToShareableHandle", out, shared->pool, 1, 0ull))) return rc;
  CUmemPoolPtrExportData data;
  if ((rc = call("cuMemPoolExportPointer", &data, shared->address))) return rc;
  std::printf("token %d:%d:", getpid(), fd);
  print_hex(data.reserved);
  std::printf("\n");
  return 0;
}

int import_pool(int pid, int their_fd, const std::string& pointer, Shared* shared) {
  const int fd = take_descriptor(pid, their_fd);
  int rc = call("cuMemPoolImportFromShareableHandle", &shared->pool, as_handle(fd), 1, 0ull);
  close(fd);
  CUmemPoolPtrExportData data;
  read_hex(pointer, data.reserved);
  if (rc == 0) rc = call("cuMemPoolImportPointer", &shared->address, shared->pool, &data);
  return rc;
}

int import_ipc(const std::string& token, Shared* shared) {
  CUipcMemHandle handle;
  read_hex(token, handle.reserved);
  return call("cuIpcOpenMemHandle_v2", &shared->address, handle, 1u);
}

int import_vmm(int pid, int their_fd, Shared* shared) {
  shared->vmm = true;
  const int fd = take_descriptor(pid, their_fd);
  int rc = call("cuMemImportFromShareableHandle", &shared->handle, as_handle(fd), 1);
  if (rc == 0) rc = map(shared);
  close(fd);
  return rc;
}

int import(const std::string& token, Shared* shared) {
  const size_t colon = token.find(':');
  if (colon == token.npos) return import_ipc(token, shared);
  const int pid = std::stoi(token), fd = std::stoi(token.substr(colon + 1));
  const size_t second = token.find(':', colon + 1);
  return second == token.npos ? import_vmm(pid, fd, shared)
                              : import_pool(pid, fd, token.substr(second + 1), shared);
}

int let_go(const Shared& shared) {
  if (shared.vmm) {
    const int rc = call("cuMemUnmap", shared.address, shared.bytes);
    return rc != 0 ? rc : call("cuMemRelease", shared.handle);
  }
  if (shared.pool != nullptr) {
    const int rc = call("cuMemFree_v2", shared.address);
    return rc != 0 || shared.imported ? rc : call("cuMemPoolTrimTo", shared.pool, size_t{0});
  }
  return shared.imported ? call("cuIpcCloseMemHandle", shared.address)
                         : call("cuMemFree_v2", shared.address);
}

int run(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr,
                 "usage: share_client export|export-vmm|export-pool|import BYTES|TOKEN [BYTES]\n");
    return 2;
  }
  const std::string mode = argv[1], what = argv[2];
  CUcontext context = nullptr;
  if (call("cuInit", 0u) != 0 || call("cuDevicePrimaryCtxRetain", &context, 0) != 0 ||
      call("cuCtxSetCurrent", context) != 0) {
    std::fprintf(stderr, "no context\n");
    return 3;
  }
  Shared shared;
  int rc = 0;
  if (mode == "import") {
    shared.imported = true;
    shared.bytes = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : kPage;
    rc = import(what, &shared);
    std::printf("open rc=%d\n", rc);
  } else {
    shared.bytes = std::strtoull(argv[2], nullptr, 10);
    rc = mode == "export"        ? export_ipc(&shared)
         : mode == "export-pool" ? export_pool(&shared)
                                 : export_vmm(&shared);
    if (rc != 0) std::printf("token rc=%d\n", rc);
  }
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    size_t bytes = 0;
    words >> command >> bytes;
    CUdeviceptr address = 0;
    if (command == "free") rc = let_go(shared);
    if (command == "freeptr") rc = call("cuMemFree_v2", shared.address);
    if (command == "alloc") rc = call("cuMemAlloc_v2", &address, bytes);
    if (command == "look") rc = call("cuMemAlloc_v2", &address, size_t{1} << 50);
    std::printf("%s rc=%d\n", command.c_str(), rc);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace client

int main(int argc, char** argv) {
  return client::run(argc, argv);
}
