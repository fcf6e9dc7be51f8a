// The element formats of arrays, and the arithmetic of their memory: what an array of a given form
// takes, and how a sparse one is cut into tiles. No real driver publishes its layout; this one is
// the simulator's, and simple enough to be counted by hand.
#pragma once

#include "sim/cuda/array_abi.h"

namespace sim {

inline constexpr uint64_t kTile = 64 << 10;  // of memory; arrays come in multiples of it

struct Extent {
  uint64_t width, height, depth;
};

// An array's descriptor with what follows from it.
struct Shape {
  // False for what the driver refuses. A mipmapped array has as many levels as asked for, or as
  // many as its largest side can be halved to; the plain array has one.
  bool set(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned wanted_levels);

  bool flag(unsigned which) const { return (form.Flags & which) != 0; }
  bool solid() const;  // three-dimensional: its depth is not a number of layers
  uint64_t layers() const;
  Extent extent(unsigned level) const;  // in elements, of one layer; at least 1 each way
  uint64_t bytes() const;               // of all levels and layers
  // Of a sparse array.
  Extent tile() const;
  unsigned tail_level() const;  // the first level smaller than a tile; `levels` when there is none
  uint64_t tail_bytes() const;  // of one layer

  CUDA_ARRAY3D_DESCRIPTOR form = {};
  unsigned levels = 1;

 private:
  uint64_t level_bytes(unsigned level) const;
};

}  // namespace sim
