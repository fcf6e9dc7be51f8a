// The memory that one process has through the simulated HSA runtime, by address: what came from
// pools, host memory it locked, imports, loaded code, mapped handles. The runtime's lock is held by
// whoever calls.
#pragma once

#include <bitset>
#include <map>
#include <utility>
#include <vector>

#include "sim/hsa/runtime.h"

namespace sim {

using AgentSet = std::bitset<kMaxDevices + 1>;  // by the agents' indices

struct Allocation {
  enum class Type : uint8_t { kPool, kLocked, kIpc, kGraphics, kReserved, kMapped, kCode };

  Type type = Type::kPool;
  bool fragment = false;    // the physical memory is a heap's
  uint32_t flags = 0;       // as asked for
  uint32_t references = 1;  // of an import, or of locked memory
  uint64_t base = 0;
  uint64_t bytes = 0;
  Pool* pool = nullptr;
  Agent* owner = nullptr;
  Chunk chunk;  // if it has physical memory, or addresses, of its own
  AgentSet accessible;
  void* user_data = nullptr;
  std::vector<std::pair<hsa_amd_deallocation_callback_t, void*>> callbacks;
};

class Memory {
 public:
  // Straight from the kernel, which is asked again when there were caches to give back to it.
  bool take_physical(const Agent& agent, uint64_t bytes, Physical* out);
  hsa_status_t allocate(Pool& pool, uint64_t bytes, uint32_t flags, uint64_t* out);
  // Takes it out of the table and gives it back. Only what came from a pool.
  hsa_status_t free(uint64_t address, Allocation* gone);

  Allocation* starting_at(uint64_t address);
  Allocation* around(uint64_t address);
  Allocation* add(Allocation allocation);
  // Gives back what the allocation has of its own.
  void remove(Allocation* allocation);
  // The physical memory behind it, which other fragments may use too; with `alone`, none will from
  // now on.
  Chunk* chunk_of(Allocation* allocation, bool alone);
  // Everything goes back, as when the kernel driver's file is closed.
  void clear();

 private:
  bool take_from_kernel(Pool& pool, uint64_t bytes, Allocation* out);
  bool take_fragment(Pool& pool, uint64_t bytes, Allocation* out);
  std::map<uint64_t, Allocation> by_address_;
};

Memory& memory();

}  // namespace sim
