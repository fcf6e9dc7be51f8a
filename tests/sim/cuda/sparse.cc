// Sparse and deferred arrays: how they are cut into 64 KiB tiles, and the one call that maps memory
// to them. A list is checked as a whole before any of it is done; the work of the stream is
// finished when the call returns. Parts of a level that are mapped must be whole tiles, or reach
// its edge.
#include <vector>

#include "sim/cuda/driver.h"

using sim::Array;
using sim::Arrays;
using sim::Block;
using sim::Driver;
using sim::Extent;
using sim::Guard;
using sim::kTile;
using sim::Shape;

namespace {

constexpr unsigned kTailLevel = UINT32_MAX;
enum : int { kMap = 1, kUnmap = 2 };

struct Region {
  Array* array = nullptr;
  Block* block = nullptr;  // null: unmap
  uint64_t bytes = 0;
  std::vector<Array::Tile> tiles;
};

// Steps along one side; false when the part is neither whole tiles nor reaches the edge.
bool steps(uint64_t offset, uint64_t extent, uint64_t tile, uint64_t side, uint64_t* first,
           uint64_t* end) {
  if (extent == 0 || offset % tile != 0 || offset >= side) return false;
  if (extent % tile != 0 ? offset + extent != side : offset + extent >= side + tile) return false;
  *first = offset / tile;
  *end = (offset + extent + tile - 1) / tile;
  return true;
}

bool part_of_level(const CUarrayMapInfo& info, Region* region) {
  const Shape& shape = region->array->shape;
  const auto& part = info.subresource.sparseLevel;
  const unsigned levels = region->array->mipmapped ? shape.tail_level() : 1;
  if (part.level >= levels || part.layer >= shape.layers()) return false;
  const Extent size = shape.extent(part.level);
  const Extent tile = shape.tile();
  uint64_t x, y, z, end_x, end_y, end_z;
  if (!steps(part.offsetX, part.extentWidth, tile.width, size.width, &x, &end_x) ||
      !steps(part.offsetY, part.extentHeight, tile.height, size.height, &y, &end_y) ||
      !steps(part.offsetZ, part.extentDepth, tile.depth, size.depth, &z, &end_z))
    return false;
  const uint64_t columns = (size.width + tile.width - 1) / tile.width;
  const uint64_t rows = (size.height + tile.height - 1) / tile.height;
  for (; z < end_z; ++z) {
    for (uint64_t row = y; row < end_y; ++row) {
      for (uint64_t column = x; column < end_x; ++column)
        region->tiles.emplace_back(part.level, part.layer, (z * rows + row) * columns + column);
    }
  }
  return true;
}

bool part_of_tail(const CUarrayMapInfo& info, Region* region) {
  const Shape& shape = region->array->shape;
  const auto& part = info.subresource.miptail;
  const uint64_t tail = region->array->mipmapped ? shape.tail_bytes() : 0;
  if (part.layer >= shape.layers() || part.size == 0 || (part.offset | part.size) % kTile != 0 ||
      part.offset > tail || part.size > tail - part.offset)
    return false;
  for (uint64_t at = part.offset; at < part.offset + part.size; at += kTile)
    region->tiles.emplace_back(kTailLevel, part.layer, at / kTile);
  return true;
}

CUresult read(const CUarrayMapInfo& info, const sim::Context* context, Region* region) {
  Driver& driver = Driver::get();
  if (info.resourceType != 0 && info.resourceType != 1) return CUDA_ERROR_INVALID_VALUE;
  region->array = info.resourceType == 0 ? driver.arrays.find(info.resource.array)
                                         : driver.arrays.find(info.resource.mipmap);
  if (region->array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Shape& shape = region->array->shape;
  const bool deferred = shape.flag(CUDA_ARRAY3D_DEFERRED_MAPPING);
  if ((!deferred && !shape.flag(CUDA_ARRAY3D_SPARSE)) || region->array->whole != nullptr ||
      info.flags != 0 || info.memHandleType != 0 || info.deviceBitMask != 1U << context->ordinal)
    return CUDA_ERROR_INVALID_VALUE;
  if (deferred) {
    region->tiles.emplace_back(0, 0, 0);
    region->bytes = shape.bytes();
  } else {
    const bool good =
        info.subresourceType == 0 ? part_of_level(info, region) : part_of_tail(info, region);
    if (!good) return CUDA_ERROR_INVALID_VALUE;
    region->bytes = region->tiles.size() * kTile;
  }
  const uint64_t memory = info.memHandle.memHandle;
  if (info.memOperationType == kUnmap) return memory == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  region->block = driver.vmm.find(memory);
  if (info.memOperationType != kMap || region->block == nullptr ||
      region->block->multicast != nullptr ||
      region->block->prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      region->block->prop.location.id != context->ordinal || info.offset % kTile != 0 ||
      info.offset > region->block->physical.bytes ||
      region->bytes > region->block->physical.bytes - info.offset)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult map_all(const CUarrayMapInfo* list, unsigned count) {
  if (list == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  SIM_CONTEXT(context);
  const Guard guard(Driver::get().lock());
  std::vector<Region> regions(count);
  for (unsigned i = 0; i < count; ++i) {
    if (const CUresult refused = read(list[i], context, &regions[i])) return refused;
  }
  Arrays& arrays = Driver::get().arrays;
  for (const Region& region : regions) {
    for (const Array::Tile& tile : region.tiles) {
      if (region.block != nullptr) {
        arrays.map(region.array, tile, region.block);
      } else {
        arrays.unmap(region.array, tile);
      }
    }
  }
  return CUDA_SUCCESS;
}

CUresult properties(CUDA_ARRAY_SPARSE_PROPERTIES* out, const Array* array) {
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Shape& shape = array->shape;
  if (!shape.flag(CUDA_ARRAY3D_SPARSE) || array->whole != nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Extent tile = shape.tile();
  *out = {};
  out->tileExtent = {static_cast<unsigned>(tile.width), static_cast<unsigned>(tile.height),
                     static_cast<unsigned>(tile.depth)};
  // An array of one level has no tail, however small it is.
  if (array->mipmapped) {
    out->miptailFirstLevel = shape.tail_level();
    out->miptailSize = shape.tail_bytes();
  }
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* out, CUarray handle) {
  SIM_CALL(cuArrayGetSparseProperties);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  return properties(out, Driver::get().arrays.find(handle));
}

SIM_API CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* out,
                                                     CUmipmappedArray handle) {
  SIM_CALL(cuMipmappedArrayGetSparseProperties);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  return properties(out, Driver::get().arrays.find(handle));
}

SIM_API CUresult cuMemMapArrayAsync(CUarrayMapInfo* list, unsigned count, CUstream) {
  SIM_CALL(cuMemMapArrayAsync);
  return map_all(list, count);
}
SIM_API CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo* list, unsigned count, CUstream) {
  SIM_CALL(cuMemMapArrayAsync_ptsz);
  return map_all(list, count);
}
