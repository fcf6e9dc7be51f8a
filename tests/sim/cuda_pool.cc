// The books of pools: chunks, holes in them, and parts that wait for their stream.
#include "cuda_pool.h"

#include <algorithm>

#include "cuda_driver.h"

namespace sim {
namespace {

uint64_t round_up(uint64_t bytes, uint64_t step) {
  return (bytes + step - 1) / step * step;
}

}  // namespace

Pool* Pools::create(const CUmemPoolProps& props, int device) {
  owned_.push_back(std::make_unique<Pool>());
  Pool* pool = owned_.back().get();
  pool->props = props;
  pool->device = device;
  pools_.insert(pool);
  return pool;
}

Pool* Pools::default_of(int ordinal, int device) {
  Pool*& pool = default_[ordinal];
  if (pool == nullptr) {
    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
    pool = create(props, device);
  }
  return pool;
}

Pool*& Pools::current_of(int ordinal, int device) {
  Pool*& pool = current_[ordinal];
  if (pool == nullptr) pool = default_of(ordinal, device);
  return pool;
}

// A destroyed pool lives on without a handle until its last part is free.
void Pools::destroy(Pool* pool) {
  pool->destroyed = true;
  pool->threshold = 0;
  pools_.erase(pool);
  for (auto& [ordinal, current] : current_) {
    if (current == pool) current = default_[ordinal];
  }
  trim(pool, 0);
}

bool Pools::take_hole(Pool* pool, uint64_t bytes, uint64_t* out) {
  for (auto& [begin, chunk] : pool->chunks) {
    for (auto hole = chunk->holes.begin(); hole != chunk->holes.end(); ++hole) {
      if (hole->second < bytes) continue;
      *out = hole->first;
      const uint64_t rest = hole->second - bytes;
      chunk->holes.erase(hole);
      if (rest > 0) chunk->holes[*out + bytes] = rest;
      ++chunk->parts;
      live_[*out] = {pool, chunk.get(), bytes};
      pool->used += bytes;
      pool->used_high = std::max(pool->used_high, pool->used);
      return true;
    }
  }
  return false;
}

bool Pools::grow(Pool* pool, uint64_t bytes) {
  const uint64_t least = round_up(bytes, kPage);
  auto chunk = std::make_unique<PoolChunk>();
  for (const uint64_t size : {std::max(least, kChunk), least}) {
    if (pool->props.maxSize != 0 && pool->reserved + size > pool->props.maxSize) continue;
    if (!Driver::get().account().take(pool->device, size, &chunk->physical)) continue;
    chunk->bytes = size;
    break;
  }
  if (chunk->bytes == 0) return false;
  chunk->address = space_.take(chunk->bytes / kPage, nullptr);
  if (chunk->address == 0) {
    Driver::get().account().drop(&chunk->physical);
    return false;
  }
  chunk->holes[chunk->address] = chunk->bytes;
  pool->reserved += chunk->bytes;
  pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
  const uint64_t address = chunk->address;
  pool->chunks[address] = std::move(chunk);
  return true;
}

CUresult Pools::allocate(Pool* pool, uint64_t bytes, uint64_t stream, uint64_t* out) {
  bytes = round_up(bytes, kUnit);
  if (take_hole(pool, bytes, out)) return CUDA_SUCCESS;
  settle(stream, false);
  if (take_hole(pool, bytes, out)) return CUDA_SUCCESS;
  if (!grow(pool, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  return take_hole(pool, bytes, out) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult Pools::free(uint64_t address, uint64_t stream) {
  const auto found = live_.find(address);
  if (found == live_.end()) return CUDA_ERROR_NOT_FOUND;
  const PoolPart part = found->second;
  live_.erase(found);
  part.pool->used -= part.bytes;
  if (stream != 0) {
    pending_.emplace(stream, Pending{address, part});
  } else {
    put_hole(part, address);
    trim(part.pool, part.pool->threshold);
  }
  return CUDA_SUCCESS;
}

void Pools::put_hole(const PoolPart& part, uint64_t address) {
  std::map<uint64_t, uint64_t>& holes = part.chunk->holes;
  auto hole = holes.emplace(address, part.bytes).first;
  const auto after = std::next(hole);
  if (after != holes.end() && hole->first + hole->second == after->first) {
    hole->second += after->second;
    holes.erase(after);
  }
  if (hole != holes.begin()) {
    const auto before = std::prev(hole);
    if (before->first + before->second == hole->first) {
      before->second += hole->second;
      holes.erase(hole);
    }
  }
  --part.chunk->parts;
}

void Pools::settle(uint64_t stream, bool all) {
  auto at = all ? pending_.begin() : pending_.lower_bound(stream);
  while (at != pending_.end() && (all || at->first == stream)) {
    put_hole(at->second.part, at->second.address);
    at = pending_.erase(at);
  }
}

void Pools::synchronised(uint64_t stream) {
  const bool all = stream == 0;
  settle(stream, all);
  for (const auto& pool : owned_) trim(pool.get(), pool->threshold);
  auto at = all ? linear_.begin() : linear_.lower_bound(stream);
  while (at != linear_.end() && (all || at->first == stream)) {
    Driver::get().free(at->second);
    at = linear_.erase(at);
  }
}

void Pools::trim(Pool* pool, uint64_t bytes_to_keep) {
  for (auto at = pool->chunks.begin();
       at != pool->chunks.end() && pool->reserved > bytes_to_keep;) {
    PoolChunk& chunk = *at->second;
    if (chunk.parts != 0) {
      ++at;
      continue;
    }
    pool->reserved -= chunk.bytes;
    space_.give_back(chunk.address, chunk.bytes / kPage);
    Driver::get().account().drop(&chunk.physical);
    at = pool->chunks.erase(at);
  }
}

const PoolPart* Pools::part_at(uint64_t address, uint64_t* begin) const {
  auto at = live_.upper_bound(address);
  if (at == live_.begin()) return nullptr;
  --at;
  *begin = at->first;
  return address - at->first < at->second.bytes ? &at->second : nullptr;
}

}  // namespace sim
