// The parts and chunks of pools: taking, freeing, merging, growing and giving back.
// The smallest free part that fits is taken: the stream's own freed ones, then what is free, then
// what streams freed that this one waits for.
#include <sys/mman.h>

#include <algorithm>

#include "sim/cuda/driver.h"
#include "sim/cuda/pool_table.h"

namespace sim {
namespace {

constexpr uint64_t kPartUnit = 512;
constexpr uint64_t kMostOnHost = 1ULL << 40;

uint64_t round_up(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

Pool::Places& Pools::places(const PoolPart& part) {
  Pool& pool = *part.chunk->pool;
  return part.state == PoolPart::State::kFree ? pool.free : pool.freed[part.stream];
}

Pools::Parts::iterator Pools::fitting(Pool* pool, const CUstream_st& stream, uint64_t bytes) {
  const auto own = pool->freed.find(stream.id);
  if (own != pool->freed.end()) {
    const auto found = own->second.lower_bound({bytes, 0});
    if (found != own->second.end()) return parts_.find(found->second);
  }
  const auto found = pool->free.lower_bound({bytes, 0});
  if (found != pool->free.end()) return parts_.find(found->second);
  if (pool->flag[CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES - 1] == 0) return parts_.end();
  for (const auto& [id, places] : pool->freed) {
    for (auto at = places.lower_bound({bytes, 0}); at != places.end(); ++at) {
      const auto part = parts_.find(at->second);
      for (const Reach& reach : stream.follows) {
        if (part->second.moment <= reach.moment && Driver::get().streams.covers(reach, id))
          return part;
      }
    }
  }
  return parts_.end();
}

Pools::Parts::iterator Pools::grow(Pool* pool, uint64_t bytes) {
  const uint64_t needed = round_up(bytes, kPoolGrowth);
  const uint64_t most = pool->props.maxSize != 0 ? pool->props.maxSize : UINT64_MAX;
  auto chunk = std::make_unique<PoolChunk>();
  // A pool with a most may have no room for a whole step.
  for (const uint64_t size : {needed, most != UINT64_MAX ? round_up(bytes, kPage) : needed}) {
    if (pool->reserved > most || size > most - pool->reserved ||
        !Driver::get().account().take(pool->device, size, &chunk->physical))
      continue;
    chunk->bytes = size;
    break;
  }
  if (chunk->bytes == 0) return parts_.end();
  if (pool->device >= 0) {
    chunk->address = space_.take(chunk->bytes / kPage, nullptr);
  } else {
    // The host may touch its own.
    void* memory = mmap(nullptr, chunk->bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    chunk->address = memory != MAP_FAILED ? reinterpret_cast<uintptr_t>(memory) : 0;
  }
  if (chunk->address == 0) {
    Driver::get().account().drop(&chunk->physical);
    return parts_.end();
  }
  chunk->pool = pool;
  host_chunks_ += pool->device < 0 ? 1 : 0;
  pool->reserved += chunk->bytes;
  pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
  PoolPart whole;
  whole.chunk = chunk.get();
  whole.bytes = chunk->bytes;
  const uint64_t address = chunk->address;
  pool->chunks[address] = std::move(chunk);
  const auto part = parts_.emplace(address, whole).first;
  enter(part);
  return part;
}

CUresult Pools::allocate(Pool* pool, uint64_t bytes, const CUstream_st& stream, uint64_t* out) {
  if (pool->imported || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t most =
      pool->device >= 0 ? Driver::get().account().total(pool->device) : kMostOnHost;
  if (bytes > most) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t size = round_up(bytes, kPartUnit);
  auto part = fitting(pool, stream, size);
  if (part == parts_.end()) part = grow(pool, size);
  if (part == parts_.end()) return CUDA_ERROR_OUT_OF_MEMORY;
  leave(part);
  PoolPart& taken = part->second;
  if (taken.bytes > size) {
    // What is left is as free as it was: in a chunk without parts, or in wait for its stream.
    PoolPart rest = taken;
    rest.bytes -= size;
    taken.bytes = size;
    if (rest.state == PoolPart::State::kFreed) {
      ++rest.chunk->parts;
      ++pool->parts;
    }
    enter(parts_.emplace(part->first + size, rest).first);
  }
  if (taken.state == PoolPart::State::kFree) {
    ++taken.chunk->parts;
    ++pool->parts;
  }
  taken.state = PoolPart::State::kUsed;
  taken.asked = bytes;
  pool->used += size;
  pool->used_high = std::max(pool->used_high, pool->used);
  *out = part->first;
  return CUDA_SUCCESS;
}

Pools::Parts::iterator Pools::merge(Parts::iterator first, Parts::iterator second) {
  leave(first);
  leave(second);
  first->second.bytes += second->second.bytes;
  parts_.erase(second);
  enter(first);
  return first;
}

// Of a part that is in no set of places.
void Pools::make_free(Parts::iterator part) {
  PoolChunk* const chunk = part->second.chunk;
  --chunk->parts;
  --chunk->pool->parts;
  part->second.state = PoolPart::State::kFree;
  enter(part);
  const auto joins = [&](Parts::iterator other) {
    return other != parts_.end() && other->second.chunk == chunk &&
           other->second.state == PoolPart::State::kFree;
  };
  if (const auto after = std::next(part); joins(after)) part = merge(part, after);
  if (part != parts_.begin() && joins(std::prev(part))) merge(std::prev(part), part);
}

bool Pools::owns(uint64_t address) const {
  if (space_.contains(address)) return true;
  const auto part = host_chunks_ != 0 ? parts_.find(address) : parts_.end();
  return part != parts_.end() && part->second.state == PoolPart::State::kUsed;
}

CUresult Pools::free_now(uint64_t address) {
  if (const auto import = imports_.find(address); import != imports_.end()) {
    if (import->second.stream != 0) return CUDA_ERROR_INVALID_VALUE;
    drop_import(import);
    return CUDA_SUCCESS;
  }
  const auto part = parts_.find(address);
  if (part == parts_.end() || part->second.state != PoolPart::State::kUsed)
    return CUDA_ERROR_INVALID_VALUE;
  Pool* const pool = part->second.chunk->pool;
  pool->used -= part->second.bytes;
  make_free(part);
  settle(pool);
  return CUDA_SUCCESS;
}

CUresult Pools::free_in(const CUstream_st& stream, uint64_t address) {
  const uint64_t moment = Driver::get().streams.next_moment();
  if (const auto import = imports_.find(address); import != imports_.end()) {
    if (import->second.stream != 0) return CUDA_ERROR_INVALID_VALUE;
    import->second.stream = stream.id;
    import->second.moment = moment;
    return CUDA_SUCCESS;
  }
  const auto part = parts_.find(address);
  if (part != parts_.end() && part->second.state == PoolPart::State::kUsed) {
    part->second.chunk->pool->used -= part->second.bytes;
    part->second.state = PoolPart::State::kFreed;
    part->second.stream = stream.id;
    part->second.moment = moment;
    enter(part);
    return CUDA_SUCCESS;
  }
  Found found;
  if (!Driver::get().find(address, &found) || found.range == nullptr || found.base != address ||
      !found.range->owns() || awaits(address))
    return CUDA_ERROR_INVALID_VALUE;
  plain_[address] = {found.context, stream.id, moment};
  return CUDA_SUCCESS;
}

void Pools::reach_parts(Pool* pool, const Reach& reach) {
  for (auto at = pool->freed.begin(); at != pool->freed.end();) {
    if (Driver::get().streams.covers(reach, at->first)) {
      const Pool::Places all = at->second;
      for (const auto& place : all) {
        const auto part = parts_.find(place.second);
        if (part->second.moment > reach.moment) continue;
        at->second.erase(place);
        make_free(part);
      }
    }
    at = at->second.empty() ? pool->freed.erase(at) : std::next(at);
  }
}

void Pools::synchronised(const Reach& reach) {
  const Streams& streams = Driver::get().streams;
  for (auto at = plain_.begin(); at != plain_.end();) {
    const auto [address, waiting] = *at;
    ++at;
    if (waiting.moment > reach.moment || !streams.covers(reach, waiting.stream)) continue;
    plain_.erase(address);
    Driver::get().free(address);
  }
  for (auto at = imports_.begin(); at != imports_.end();) {
    const Imported& import = at->second;
    const bool done =
        import.stream != 0 && import.moment <= reach.moment && streams.covers(reach, import.stream);
    at = done ? drop_import(at) : std::next(at);
  }
  for (auto at = pools_.begin(); at != pools_.end();) {
    Pool* const pool = (at++)->second.get();
    reach_parts(pool, reach);
    // The newest go first; a pool that ends up with less than its threshold took smaller chunks.
    auto chunk = pool->chunks.end();
    while (chunk != pool->chunks.begin() && pool->reserved > pool->threshold) {
      --chunk;
      if (chunk->second->parts == 0) chunk = drop_chunk(chunk);
    }
    settle(pool);
  }
}

}  // namespace sim
