// Shares device memory with other processes: by IPC handle or by descriptor.
//
//   share_client export BYTES       prints "token HANDLE", the handle in hexadecimal
//   share_client export-within BYTES  the same, of an address within the memory
//   share_client export-vmm BYTES   prints "token PID:FD", a descriptor to be taken from there
//   share_client export-range BYTES  the same of a dma-buf of linear memory, from 4 MiB on;
//                                  export-mapped-range BYTES of VMM in two pieces
//   share_client export-pool BYTES  prints "token PID:FD:POINTER", of a pool and memory of it
//   share_client import TOKEN       opens it, prints "open rc=N"
//   share_client import-handle TOKEN  the same, but maps it nowhere
// Then one command a line: "free" lets go of the memory, "close" of a dma-buf, "freeptr" calls
// cuMemFree on it, "free-in-order" cuMemFreeAsync and waits, "alloc BYTES" allocates and keeps,
// "look" makes the library read the driver's report. Each answers "COMMAND rc=N".
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include "share.h"

namespace client {
namespace {

constexpr size_t kPage = 2u << 20;

int export_by(const std::string& mode, Shared* shared) {
  std::string token;
  const bool is_ipc = mode == "export" || mode == "export-within";
  if (mode == "export-within" || mode == "export-range") shared->within = 2 * kPage;
  const int rc = export_memory(is_ipc                          ? Way::ipc
                               : mode == "export-pool"         ? Way::pool
                               : mode == "export-range"        ? Way::range
                               : mode == "export-mapped-range" ? Way::mapped_range
                                                               : Way::descriptor,
                               shared, &token);
  if (rc == 0) std::printf("token %s\n", token.c_str());
  return rc;
}

int run(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(
        stderr,
        "usage: share_client export[-within|-vmm|-pool|-range|-mapped-range]|import[-handle] "
        "BYTES|TOKEN [BYTES]\n");
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
  if (mode.rfind("import", 0) == 0) {
    shared.bytes = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : kPage;
    rc = import_memory(what, &shared, mode == "import");
    std::printf("open rc=%d\n", rc);
  } else {
    shared.bytes = std::strtoull(argv[2], nullptr, 10);
    rc = export_by(mode, &shared);
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
    if (command == "close") rc = close(shared.fd);
    if (command == "freeptr") rc = call("cuMemFree_v2", shared.address);
    if (command == "free-in-order") {
      rc = call("cuMemFreeAsync", shared.address, CUstream{nullptr});
      if (rc == 0) rc = call("cuStreamSynchronize", CUstream{nullptr});
    }
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
