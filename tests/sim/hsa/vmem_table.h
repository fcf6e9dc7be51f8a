// Virtual memory management, since ROCm 6.1: handles of physical memory, reserved addresses, and
// mappings of the ones at the others. Physical memory goes back when its handle has no references
// left and nothing maps it, in whatever order they go. The runtime's lock is held by whoever calls.
#pragma once

#include <map>

#include "sim/hsa/memory.h"

namespace sim {

class Vmem {
 public:
  struct Block {
    Physical physical;
    Pool* pool = nullptr;
    uint32_t type = 0;
    uint64_t references = 0;
    uint64_t mappings = 0;
  };
  struct Mapping {
    uint64_t bytes = 0;
    uint64_t handle = 0;
    std::map<uint32_t, hsa_access_permission_t> access;  // by agent's index
  };

  // With one reference.
  uint64_t add(const Physical& physical, Pool* pool, uint32_t type);
  // Null for one without references, though mappings may be left.
  Block* find(uint64_t handle);
  Block* mapped(uint64_t handle);
  void release(uint64_t handle);

  hsa_status_t reserve(uint64_t bytes, uint64_t wanted, uint64_t alignment, uint64_t* out);
  hsa_status_t unreserve(uint64_t address, uint64_t bytes);
  hsa_status_t map(uint64_t address, uint64_t bytes, uint64_t handle);
  hsa_status_t unmap(uint64_t address, uint64_t bytes);
  Mapping* at(uint64_t address, uint64_t bytes);
  Mapping* around(uint64_t address, uint64_t* start);
  bool describe(uint64_t address, Allocation* out);
  void clear();

 private:
  void settle(uint64_t handle);

  std::map<uint64_t, Block> blocks_;
  std::map<uint64_t, uint64_t> reservations_;
  std::map<uint64_t, Mapping> mappings_;
  uint64_t next_handle_ = 0x5a000001;  // never used twice, so that a stale one is recognised
};

Vmem& vmem();

}  // namespace sim
