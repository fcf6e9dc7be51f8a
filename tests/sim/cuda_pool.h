// Stream-ordered memory pools of one process.
// A pool reserves physical memory in chunks and hands out parts of them. A part that was freed in a
// stream can be taken again by that stream at once, by others when the stream was waited for; then,
// too, chunks without any part are given back until the release threshold is reached. All of it
// wants the driver's lock held.
#ifndef FRACGPU_TESTS_SIM_CUDA_POOL_H_
#define FRACGPU_TESTS_SIM_CUDA_POOL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "account.h"
#include "cuda_memory_abi.h"
#include "cuda_space.h"

namespace sim {

struct PoolChunk {
  Physical physical;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t parts = 0;                  // live or freed but not yet waited for
  std::map<uint64_t, uint64_t> holes;  // address and size of what is free
};

struct PoolPart {
  struct Pool* pool;
  PoolChunk* chunk;
  uint64_t bytes;
};

struct Pool {
  CUmemPoolProps props = {};
  int device = -1;  // physical; < 0: host memory
  bool destroyed = false;
  uint64_t threshold = 0;
  uint64_t reserved = 0, reserved_high = 0, used = 0, used_high = 0;
  std::map<uint64_t, std::unique_ptr<PoolChunk>> chunks;  // by address
};

class Pools {
 public:
  static constexpr uint64_t kChunk = 32u << 20;
  static constexpr uint64_t kUnit = 512;

  Pool* create(const CUmemPoolProps& props, int device);
  bool known(const Pool* pool) const { return pools_.count(const_cast<Pool*>(pool)) != 0; }
  void destroy(Pool* pool);
  Pool* default_of(int ordinal, int device);
  Pool*& current_of(int ordinal, int device);

  CUresult allocate(Pool* pool, uint64_t bytes, uint64_t stream, uint64_t* out);
  // In stream order, or (`stream` 0) at once. NOT_FOUND: no pool has such a part.
  CUresult free(uint64_t address, uint64_t stream);
  // A plain allocation that is freed when its stream gets there.
  void free_later(uint64_t address, uint64_t stream) { linear_.emplace(stream, address); }
  // The stream was waited for, or (0) all were.
  void synchronised(uint64_t stream);
  void trim(Pool* pool, uint64_t bytes_to_keep);

  bool contains(uint64_t address) const { return space_.contains(address); }
  const PoolPart* part_at(uint64_t address, uint64_t* begin) const;

 private:
  bool take_hole(Pool* pool, uint64_t bytes, uint64_t* out);
  bool grow(Pool* pool, uint64_t bytes);
  void put_hole(const PoolPart& part, uint64_t address);
  void settle(uint64_t stream, bool all);

  AddressSpace space_{0x3b0000000000ULL, 0x430000000000ULL};
  std::set<Pool*> pools_;
  std::vector<std::unique_ptr<Pool>> owned_;
  std::map<int, Pool*> default_, current_;
  std::map<uint64_t, PoolPart> live_;
  struct Pending {
    uint64_t address;
    PoolPart part;
  };
  std::multimap<uint64_t, Pending> pending_;  // by stream
  std::multimap<uint64_t, uint64_t> linear_;  // by stream
};

}  // namespace sim

#endif  // FRACGPU_TESTS_SIM_CUDA_POOL_H_
