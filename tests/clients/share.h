// Device memory that goes across processes, in each of the ways that CUDA has for it: what
// share_client and the random calls have in common.
#pragma once

#include <cstddef>
#include <string>

#include "tests/clients/random/actor.h"

namespace client {

enum class Way { ipc, descriptor, pool, range, mapped_range };

// What this process has: linear memory, an IPC import or memory of a pool by its address; VMM by
// handle and mapping. Ranges of either are dma-bufs, which CUDA does not import.
struct Shared {
  Way way = Way::ipc;
  // How far into the memory the exported address is; of Way::ipc and Way::range alone.
  size_t within = 0;
  bool imported = false;
  CUmemoryPool pool = nullptr;
  CUdeviceptr address = 0;
  size_t bytes = 0;
  CUmemGenericAllocationHandle handle = 0;
  int fd = -1;  // by which others import it
};

// Makes `shared->bytes` of memory and exports it; `token` is what another process needs to import
// it. All return CUDA's result.
int export_memory(Way way, Shared* shared, std::string* token);

// Imports `shared->bytes` of another process's memory. VMM is mapped, unless said otherwise.
int import_memory(const std::string& token, Shared* shared, bool mapped = true);

// Frees it, or lets go of the import.
int let_go(const Shared& shared);

}  // namespace client
