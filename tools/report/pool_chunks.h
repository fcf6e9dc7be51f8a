// The chunks of a CUDA pool, and which of them have something in them: only a chunk in which
// nothing lives can be given back, however little lives in the others.
//
// No call tells where chunks are. A pool grows for an allocation that fits nowhere, and by a chunk
// with that allocation at its start; so that is where the chunk is taken to be. (tests/hardware.sh
// measures by how much pools grow, as sweep.pool_chunk_bytes.)
#pragma once

#include <cstdint>
#include <map>

namespace fracgpu::tools::report {

class PoolChunks {
 public:
  // In the order in which a program was seen to do it: the growth is told behind the allocation
  // that it was for.
  void allocate(uint64_t address, uint64_t bytes);
  void release(uint64_t address);
  void grow(uint64_t bytes);

  // Bytes of the chunks in which something lives.
  uint64_t in_use() const { return in_use_; }

 private:
  struct Chunk {
    uint64_t bytes = 0, users = 0;
  };
  using Chunks = std::map<uint64_t, Chunk>;  // by their first addresses

  Chunks::iterator chunk_at(uint64_t address);
  void make_room(uint64_t begin, uint64_t end);

  Chunks chunks_;
  uint64_t in_use_ = 0;
  uint64_t waiting_ = 0;  // the first address of the chunk whose growth was not told yet; 0: none
};

}  // namespace fracgpu::tools::report
