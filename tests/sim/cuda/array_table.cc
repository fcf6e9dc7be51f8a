// The table of arrays: their making, their ends, and what is mapped to them.
// An array's memory comes from pages and chunks of their own, as NVIDIA's libcuda 535 has them.
// Each mapped tile is a use of the block it lies in, until it is unmapped or mapped anew, or the
// array ends.
#include "sim/cuda/array_table.h"

#include <utility>

#include "sim/cuda/driver.h"

namespace sim {

Array* Arrays::add(Context* context, const Shape& shape, bool mipmapped) {
  auto array = std::make_unique<Array>();
  array->shape = shape;
  array->mipmapped = mipmapped;
  array->context = context;
  array->handle = handle_of<uint64_t>(array.get());
  return (arrays_[array->handle] = std::move(array)).get();
}

CUresult Arrays::create(Context* context, const Shape& shape, bool mipmapped, bool owns,
                        Array** out) {
  context = context->owner();
  uint64_t address = 0;
  if (owns && !shape.flag(CUDA_ARRAY3D_SPARSE) && !shape.flag(CUDA_ARRAY3D_DEFERRED_MAPPING)) {
    const CUresult result =
        Driver::get().allocate(context, shape.bytes(), false, false, &address, true);
    if (result != CUDA_SUCCESS) return result;
  }
  *out = add(context, shape, mipmapped);
  (*out)->address = address;
  return CUDA_SUCCESS;
}

Array* Arrays::find(uint64_t handle, bool mipmapped) {
  const auto found = arrays_.find(handle);
  return found != arrays_.end() && found->second->mipmapped == mipmapped ? found->second.get()
                                                                         : nullptr;
}

Array* Arrays::level_of(Array* mipmapped, unsigned level) {
  for (Array* known : mipmapped->levels) {
    if (known->level == level) return known;
  }
  Shape shape = mipmapped->shape;
  const Extent size = shape.extent(level);
  shape.levels = 1;
  shape.form.Width = size.width;
  if (shape.form.Height != 0) shape.form.Height = size.height;
  if (shape.solid()) shape.form.Depth = size.depth;
  Array* array = add(mipmapped->context, shape, false);
  array->whole = mipmapped;
  array->level = level;
  mipmapped->levels.push_back(array);
  return array;
}

void Arrays::erase(Array* array) {
  while (!array->tiles.empty()) unmap(array, array->tiles.begin()->first);
  for (Array* level : array->levels) arrays_.erase(level->handle);
  arrays_.erase(array->handle);
}

void Arrays::destroy(Array* array) {
  if (array->address != 0) Driver::get().free(array->address);
  erase(array);
}

void Arrays::forget(const Context* context) {
  std::vector<Array*> ended;
  for (const auto& [handle, array] : arrays_) {
    if (array->context == context && array->whole == nullptr) ended.push_back(array.get());
  }
  for (Array* array : ended) erase(array);
}

void Arrays::map(Array* array, const Array::Tile& tile, Block* block) {
  Vmm& vmm = Driver::get().vmm;
  vmm.begin_use(block);  // first, because it may be the one that is there
  Block* const before = std::exchange(array->tiles[tile], block);
  if (before != nullptr) vmm.end_use(before);
}

void Arrays::unmap(Array* array, const Array::Tile& tile) {
  const auto found = array->tiles.find(tile);
  if (found == array->tiles.end()) return;
  Block* const block = found->second;
  array->tiles.erase(found);
  Driver::get().vmm.end_use(block);
}

}  // namespace sim
