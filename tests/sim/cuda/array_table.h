// The arrays of one process: plain, mipmapped, sparse, deferred, and those that lie in memory made
// elsewhere. Plain ones take memory like linear allocations of their size; sparse and deferred ones
// take none, and use what is mapped to them. All of it wants the driver's lock held.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "sim/cuda/format.h"
#include "sim/cuda/reused.h"

namespace sim {

struct Block;
struct Context;

struct Array : Reused<Array> {
  // A tile: level, layer, and its number there. The mip tail of a layer is a level of its own.
  using Tile = std::tuple<unsigned, unsigned, uint64_t>;

  Shape shape;
  bool mipmapped = false;
  uint64_t handle = 0;
  Context* context = nullptr;
  uint64_t address = 0;          // 0: it takes no memory of its own
  std::map<Tile, Block*> tiles;  // what is mapped; a deferred array has one, which is all of it
  Array* whole = nullptr;        // of a level: its mipmapped array
  unsigned level = 0;
  std::vector<Array*> levels;  // that have been asked for
};

class Arrays {
 public:
  CUresult create(Context* context, const Shape& shape, bool mipmapped, bool owns, Array** out);
  // Null for what is no such array of a living context.
  Array* find(CUarray handle) { return find(reinterpret_cast<uintptr_t>(handle), false); }
  Array* find(CUmipmappedArray handle) { return find(reinterpret_cast<uintptr_t>(handle), true); }
  Array* level_of(Array* mipmapped, unsigned level);
  void destroy(Array* array);
  // The context ends, and takes the memory of its arrays along itself.
  void forget(const Context* context);

  void map(Array* array, const Array::Tile& tile, Block* block);
  void unmap(Array* array, const Array::Tile& tile);

 private:
  Array* add(Context* context, const Shape& shape, bool mipmapped);
  Array* find(uint64_t handle, bool mipmapped);
  void erase(Array* array);

  std::unordered_map<uint64_t, std::unique_ptr<Array>> arrays_;
};

}  // namespace sim
