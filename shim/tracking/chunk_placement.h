// Predicts the chunks of small allocations that the driver makes later, at their first use.
//
// NVIDIA's driver takes the smallest hole that fits, the oldest one among equals, and gives a chunk
// back with its last user (OpenCL 535.261.03). No call reports the first use, so each allocation is
// placed when it is created. In another order the driver needs nearly as many chunks: 1,985 buffers
// of 4 KiB to 1 MiB took 506 in order, and 505 in random order.
#pragma once

#include <sys/mman.h>

#include <cstdint>

#include "shim/tracking/chunk_occupancy.h"

namespace fracgpu {

// It has no lock of its own. Its chunks' occupancies are in `occupancies`.
class ChunkPlacement {
 public:
  struct Place {
    uint32_t chunk = 0;
    uint32_t first = 0;  // unit
  };

  // Takes a hole. False: no chunk has a large enough one.
  bool take_hole(ChunkOccupancies& occupancies, uint32_t units, Place& place) {
    uint32_t best = kNone;
    for (uint32_t i = 0; i < used_; ++i) {
      if (chunks_[i].longest_hole < units) continue;
      if (best == kNone || chunks_[i].longest_hole < chunks_[best].longest_hole) best = i;
    }
    if (best == kNone) return false;
    take(occupancies, best, units, place);
    return true;
  }

  // Takes a part of a new chunk. False: the host is out of memory, or there are too many chunks.
  bool add_chunk(ChunkOccupancies& occupancies, uint32_t units, Place& place) {
    if (chunks_ == nullptr && !map()) return false;
    uint32_t i = 0;
    while (i < used_ && chunks_[i].users > 0) ++i;
    if (i == kMost) return false;
    if (i == used_) ++used_;
    chunks_[i].occupancy = ChunkOccupancies::of_one({});
    take(occupancies, i, units, place);
    return true;
  }

  // Gives a part back. True if the chunk goes with it.
  bool give_back(ChunkOccupancies& occupancies, const Place& place) {
    Chunk& chunk = chunks_[place.chunk];
    occupancies.release(chunk.occupancy, place.first);
    if (--chunk.users > 0) {
      look_for_holes(occupancies, chunk);
      return false;
    }
    occupancies.drop(chunk.occupancy);
    chunk = {};
    while (used_ > 0 && chunks_[used_ - 1].users == 0) --used_;
    return true;
  }

  // Forgets all chunks, which must be gone.
  void clear() {
    if (chunks_ != nullptr) munmap(chunks_, kMost * sizeof(Chunk));
    *this = {};
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kMost = 384 * 1024;  // as many as there are occupancies

  struct Chunk {
    uint32_t occupancy = ChunkOccupancies::kNone;  // kNone: the host had no memory for its map
    uint16_t longest_hole = 0;                     // units
    uint16_t users = 0;                            // 0: the entry is free
  };

  // Address space, only the used part of which becomes memory.
  bool map() {
    void* const bytes = mmap(nullptr, kMost * sizeof(Chunk), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes != MAP_FAILED) chunks_ = static_cast<Chunk*>(bytes);
    return chunks_ != nullptr;
  }

  void take(ChunkOccupancies& occupancies, uint32_t index, uint32_t units, Place& place) {
    Chunk& chunk = chunks_[index];
    ChunkPart best{0, UINT32_MAX};
    occupancies.for_each_hole(chunk.occupancy, [&](const ChunkPart& hole) {
      if (hole.units >= units && hole.units < best.units) best = hole;
    });
    place = {index, best.first};
    occupancies.take(chunk.occupancy, {best.first, units});
    ++chunk.users;
    look_for_holes(occupancies, chunk);
  }

  void look_for_holes(const ChunkOccupancies& occupancies, Chunk& chunk) {
    chunk.longest_hole = 0;
    occupancies.for_each_hole(chunk.occupancy, [&](const ChunkPart& hole) {
      if (hole.units > chunk.longest_hole) chunk.longest_hole = static_cast<uint16_t>(hole.units);
    });
  }

  Chunk* chunks_ = nullptr;
  uint32_t used_ = 0;
};

}  // namespace fracgpu
