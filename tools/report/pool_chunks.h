// The chunks of a CUDA pool, and which of them contain live memory. Only a chunk without live
// memory can be given back, even if the others contain little.
//
// No call reports where chunks are. A pool grows for an allocation that fits nowhere, by a chunk
// that starts with that allocation. So this code assumes the chunk there. (tests/hardware.sh
// measures by how much pools grow, as sweep.pool_chunk_bytes.)
#pragma once

#include <cstdint>
#include <map>

namespace fracgpu::tools::report {

class PoolChunks {
 public:
  // Call these in the order of the recording: growth is recorded after the allocation that caused
  // it.
  void allocate(uint64_t address, uint64_t bytes);
  void release(uint64_t address);
  void grow(uint64_t bytes);

  // Bytes of the chunks that contain live memory.
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
  uint64_t waiting_ = 0;  // first address of the chunk whose growth is still missing; 0: none
};

}  // namespace fracgpu::tools::report
