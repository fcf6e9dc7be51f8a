// Memory as this process sees it. All memory of the machine is one sparse file, which is mapped
// whole into each process that uses the GPU; the accounting says who has which part.
#pragma once

#include <cstdint>
#include <memory>

#include "accounting.h"

namespace rmsim {

struct Memory {
  Kind kind;
  uint64_t size = 0;
  char* host = nullptr;
  int record = -1;  // in the accounting, if it is there
  uint32_t generation = 0;
  uint32_t attr = 0, attr2 = 0;       // as RM gave them to whoever allocated it
  bool holds_driver_kernels = false;  // see driver_kernels.cc

  Memory(Kind kind, uint64_t size, char* host) : kind(kind), size(size), host(host) {}
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
};
using MemoryPtr = std::shared_ptr<Memory>;

extern Accounting& accounting;

bool open_machine(const char* folder);  // false: one line on stderr says why
void join_as_new_process();             // after fork: what the parent has is not ours
MemoryPtr allocate_memory(int gpu, Kind kind, uint64_t size,
                          uint64_t alignment);             // nullptr: no memory
MemoryPtr import_memory(int record, uint32_t generation);  // of another process, or of this one
uint64_t physical_address(const Memory& memory);
void* map_memory(const Memory& memory, uint64_t offset, uint64_t length, void* address,
                 int protection, int flags);

// Sets bytes to 0, of large pieces by taking the pages away, so that cleared memory takes none of
// the host.
void clear_memory(char* host, uint64_t length);

}  // namespace rmsim
