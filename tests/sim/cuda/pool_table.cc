// The pools themselves: making and destroying them, which of them is the current one of a place,
// and giving their chunks back.
#include "sim/cuda/pool_table.h"

#include <sys/mman.h>

#include "sim/cuda/driver.h"

namespace sim {

Pool* Pools::create(const CUmemPoolProps& props) {
  const bool managed = props.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
  CUdevice device = device_of(props.location);
  if (managed && device < 0) device = current() != nullptr ? current()->ordinal : 0;
  auto pool = std::make_unique<Pool>();
  pool->handle = handle_of<CUmemoryPool>(pool.get());
  pool->props = props;
  pool->device = device >= 0 ? Driver::get().physical(device) : -1;
  for (CUdevice each = 0; each < Driver::get().device_count(); ++each)
    pool->access[each] = managed || each == device ? 3 : 0;
  return (pools_[pool->handle] = std::move(pool)).get();
}

Pool* Pools::find(CUmemoryPool handle) {
  const auto found = pools_.find(handle);
  return found != pools_.end() && !found->second->destroyed ? found->second.get() : nullptr;
}

bool Pools::destroy(Pool* pool) {
  const Place place = place_of(pool->props.location, pool->props.allocType);
  if (!pool->imported && default_[place] == pool) return false;
  if (current_[place] == pool) current_[place] = nullptr;
  pool->destroyed = true;
  settle(pool);
  return true;
}

Pools::Place Pools::place_of(const CUmemLocation& where, int type) {
  const bool has_id = where.type != CU_MEM_LOCATION_TYPE_HOST;
  return {type, where.type, has_id && where.type != CU_MEM_LOCATION_TYPE_NONE ? where.id : 0};
}

Pool* Pools::default_of(const CUmemLocation& where, int type) {
  if (check_place(where, type) != CUDA_SUCCESS) return nullptr;
  Pool*& pool = default_[place_of(where, type)];
  if (pool == nullptr) {
    CUmemPoolProps props = {};
    props.allocType = type;
    props.location = where;
    pool = create(props);
  }
  return pool;
}

Pool* Pools::current_of(const CUmemLocation& where, int type) {
  Pool* const chosen = current_[place_of(where, type)];
  return chosen != nullptr ? chosen : default_of(where, type);
}

bool Pools::set_current(const CUmemLocation& where, int type, Pool* pool) {
  const Place place = place_of(where, type);
  if (pool->imported || place_of(pool->props.location, pool->props.allocType) != place)
    return false;
  current_[place] = pool;
  return true;
}

// One without parts in use is a single free part.
Pools::Chunks::iterator Pools::drop_chunk(Chunks::iterator at) {
  leave(parts_.find(at->first));
  parts_.erase(at->first);
  PoolChunk& chunk = *at->second;
  Pool& pool = *chunk.pool;
  if (pool.device >= 0) {
    space_.give_back(chunk.address, chunk.bytes / kPage);
  } else {
    munmap(reinterpret_cast<void*>(chunk.address), chunk.bytes);
    --host_chunks_;
  }
  pool.reserved -= chunk.bytes;
  Driver::get().account().drop(&chunk.physical);
  return pool.chunks.erase(at);
}

void Pools::trim(Pool* pool, uint64_t keep) {
  auto at = pool->chunks.end();
  while (at != pool->chunks.begin()) {
    --at;
    const PoolChunk& chunk = *at->second;
    if (chunk.parts == 0 && pool->reserved - chunk.bytes >= keep) at = drop_chunk(at);
  }
}

void Pools::settle(Pool* pool) {
  if (!pool->destroyed || pool->parts != 0) return;
  trim(pool, 0);
  if (pool->shared.object >= 0) Driver::get().account().drop(&pool->shared);
  pools_.erase(pool->handle);
}

Pools::Imports::iterator Pools::drop_import(Imports::iterator at) {
  Imported& import = at->second;
  space_.give_back(at->first, (import.bytes + kPage - 1) / kPage);
  Driver::get().account().drop(&import.physical);
  Pool* const pool = import.pool;
  const auto next = imports_.erase(at);
  --pool->parts;
  settle(pool);
  return next;
}

bool Pools::find(uint64_t address, Found* found) const {
  const Pool* pool = nullptr;
  if (auto at = parts_.upper_bound(address); at != parts_.begin()) {
    --at;
    if (at->second.state == PoolPart::State::kUsed && address - at->first < at->second.asked) {
      pool = at->second.chunk->pool;
      found->base = at->first;
      found->bytes = at->second.asked;
      found->chunk = at->second.chunk->bytes;
    }
  }
  if (auto at = imports_.upper_bound(address); pool == nullptr && at != imports_.begin()) {
    --at;
    if (at->second.stream == 0 && address - at->first < at->second.bytes) {
      pool = at->second.pool;
      found->base = at->first;
      found->bytes = at->second.bytes;
      found->chunk = at->second.physical.bytes;
    }
  }
  if (pool == nullptr) return false;
  const bool on_device = pool->device >= 0;
  found->ordinal = std::max(device_of(pool->props.location), 0);
  found->id = found->base;
  found->pool = pool->handle;
  found->accessible = !on_device || (current() != nullptr && pool->access[current()->ordinal] != 0);
  return true;
}

void Pools::forget(const Context* context) {
  for (auto at = plain_.begin(); at != plain_.end();)
    at = at->second.context == context ? plain_.erase(at) : std::next(at);
}

}  // namespace sim
