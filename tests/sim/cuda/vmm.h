// Virtual memory management of one process: blocks of physical memory behind handles, reserved
// addresses, and the mappings between them. A block's memory stays while a reference to its handle
// or a use of it is left, in whatever order they go; that other processes may hold it too is the
// node's business. All of it wants the driver's lock held.
#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "sim/cuda/memory_abi.h"
#include "sim/cuda/reused.h"
#include "sim/cuda/space.h"
#include "sim/node/account.h"

namespace sim {

struct Block;

// A multicast object takes no memory; what is bound to it is in use by it.
struct Multicast {
  struct Binding {
    uint64_t bytes;
    Block* block;
  };
  CUmulticastObjectProp prop = {};
  bool has_device[kMaxDevices] = {};
  std::map<std::pair<CUdevice, uint64_t>, Binding> bindings;  // by device and offset
};

struct Block : Reused<Block> {
  Physical physical;
  CUmemAllocationProp prop = {};
  uint64_t handle = 0;
  uint64_t references = 0;  // to the handle
  uint64_t uses = 0;        // mappings, bindings, array tiles
  std::unique_ptr<Multicast> multicast;
};

struct Mapping {
  uint64_t bytes = 0;
  Block* block = nullptr;
  uint8_t access[kMaxDevices] = {};
  uint8_t host_access = 0;
};

class Vmm {
 public:
  // A new block with one reference.
  Block* add(const Physical& physical, const CUmemAllocationProp& prop);
  // Null for a handle that has no references left, though its memory may still be in use.
  Block* find(uint64_t handle);
  void release(Block* block);
  void begin_use(Block* block) { ++block->uses; }
  void end_use(Block* block);

  CUresult reserve(uint64_t bytes, uint64_t alignment, uint64_t* out);
  CUresult unreserve(uint64_t address, uint64_t bytes);
  CUresult map(uint64_t address, uint64_t bytes, Block* block);
  CUresult unmap(uint64_t address, uint64_t bytes);
  CUresult set_access(uint64_t address, uint64_t bytes, const CUmemLocation& where, int flags);
  bool contains(uint64_t address) const { return space_.contains(address); }
  // Null when nothing is mapped there.
  Mapping* mapping_at(uint64_t address, uint64_t* start);

 private:
  using Mappings = std::map<uint64_t, Mapping>;
  struct Reservation {
    uint64_t bytes;
    uint64_t taken, pages;  // what alignment cost is given back with it
  };
  // The mappings that cover these addresses without a gap and without being cut; else false.
  bool whole(uint64_t address, uint64_t bytes, Mappings::iterator* first, Mappings::iterator* end);
  void settle(Block* block);

  AddressSpace space_{0x230000000000ULL, 0x3b0000000000ULL};
  std::unordered_map<uint64_t, std::unique_ptr<Block>> blocks_;
  std::map<uint64_t, Reservation> reservations_;
  Mappings mappings_;
};

}  // namespace sim
