// Shares device memory with other processes: by IPC handle or by descriptor.
//
//   share_client export BYTES       prints "token HANDLE", the handle in hexadecimal
//   share_client export-vmm BYTES   prints "token PID:FD", a descriptor to be taken from this
//   process share_client import TOKEN       opens it, prints "open rc=N"
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

// What this process has: linear memory or an IPC import by its address; VMM by handle and mapping.
struct Shared {
  bool vmm = false, imported = false;
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

int export_ipc(Shared* shared) {
  CUipcMemHandle handle;
  if (const int rc = call("cuMemAlloc_v2", &shared->address, shared->bytes)) return rc;
  if (const int rc = call("cuIpcGetMemHandle", &handle, shared->address)) return rc;
  std::printf("token ");
  for (const char byte : handle.reserved) std::printf("%02x", static_cast<unsigned char>(byte));
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

int import_ipc(const std::string& token, Shared* shared) {
  CUipcMemHandle handle;
  for (size_t i = 0; i < sizeof handle; ++i) {
    handle.reserved[i] = static_cast<char>(std::stoi(token.substr(2 * i, 2), nullptr, 16));
  }
  return call("cuIpcOpenMemHandle_v2", &shared->address, handle, 1u);
}

int import_vmm(int pid, int their_fd, Shared* shared) {
  shared->vmm = true;
  const auto process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  const auto fd = static_cast<int>(syscall(SYS_pidfd_getfd, process, their_fd, 0));
  void* os_handle = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
  int rc = call("cuMemImportFromShareableHandle", &shared->handle, os_handle, 1);
  if (rc == 0) rc = map(shared);
  close(fd);
  close(process);
  return rc;
}

int let_go(const Shared& shared) {
  if (shared.vmm) {
    const int rc = call("cuMemUnmap", shared.address, shared.bytes);
    return rc != 0 ? rc : call("cuMemRelease", shared.handle);
  }
  return shared.imported ? call("cuIpcCloseMemHandle", shared.address)
                         : call("cuMemFree_v2", shared.address);
}

int run(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: share_client export|export-vmm|import BYTES|TOKEN [BYTES]\n");
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
    const size_t colon = what.find(':');
    rc = colon == what.npos
             ? import_ipc(what, &shared)
             : import_vmm(std::stoi(what), std::stoi(what.substr(colon + 1)), &shared);
    std::printf("open rc=%d\n", rc);
  } else {
    shared.bytes = std::strtoull(argv[2], nullptr, 10);
    rc = mode == "export" ? export_ipc(&shared) : export_vmm(&shared);
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
