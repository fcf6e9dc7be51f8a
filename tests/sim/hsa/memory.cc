// How requests become physical memory. As in the real runtime (core/runtime/amd_memory_region.cpp):
// sizes are rounded up to 4 KiB; ordinary requests to a GPU's pool go through its fragment heap,
// those with any flag, or all with HSA_DISABLE_FRAGMENT_ALLOCATOR=1, straight to the kernel; when
// the kernel refuses, the caches of all pools of the agent are given back and it is tried once
// more.
#include "sim/hsa/memory.h"

#include <cstdlib>
#include <cstring>

#include "sim/hsa/kernel.h"
#include "sim/hsa/svm.h"
#include "sim/hsa/vmem_table.h"

namespace sim {
namespace {

bool fragments_disabled() {
  static const bool disabled = [] {
    const char* text = std::getenv("HSA_DISABLE_FRAGMENT_ALLOCATOR");
    return text != nullptr && std::strcmp(text, "1") == 0;
  }();
  return disabled;
}

bool trim(const Agent& agent) {
  bool any = false;
  for (const auto& pool : agent.pools) any = pool->heap.trim(Runtime::get().account()) || any;
  return evict_svm(agent) || any;
}

}  // namespace

Memory& memory() {
  static Memory* const memory = new Memory;
  return *memory;
}

bool Memory::take_physical(const Agent& agent, uint64_t bytes, Physical* out) {
  const auto take = [&] {
    return may_take(agent.device) && Runtime::get().account().take(agent.device, bytes, out);
  };
  return take() || (trim(agent) && take());
}

bool Memory::take_from_kernel(Pool& pool, uint64_t bytes, Allocation* out) {
  if (!take_chunk(Runtime::get().account(), pool.agent->device, bytes, &out->chunk)) return false;
  out->base = out->chunk.base;
  return true;
}

bool Memory::take_fragment(Pool& pool, uint64_t bytes, Allocation* out) {
  out->base = pool.heap.take(Runtime::get().account(), pool.agent->device, bytes);
  out->fragment = out->base != 0;
  return out->fragment;
}

hsa_status_t Memory::allocate(Pool& pool, uint64_t bytes, uint32_t flags, uint64_t* out) {
  if (pool.kind == Pool::Kind::kGroup || bytes > UINT64_MAX / 2)
    return HSA_STATUS_ERROR_INVALID_ALLOCATION;
  bytes = round_up(bytes, kGrain);
  Allocation allocation;
  if (!pool.agent->gpu()) {
    if (!take_from_kernel(pool, bytes, &allocation)) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  } else {
    if (bytes > Runtime::get().row(*pool.agent).total) return HSA_STATUS_ERROR_INVALID_ALLOCATION;
    const auto take =
        flags != 0 || fragments_disabled() ? &Memory::take_from_kernel : &Memory::take_fragment;
    if (!(this->*take)(pool, bytes, &allocation) &&
        !(trim(*pool.agent) && (this->*take)(pool, bytes, &allocation)))
      return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  }
  allocation.bytes = bytes;
  allocation.flags = flags;
  allocation.pool = &pool;
  allocation.owner = pool.agent;
  allocation.accessible.set(pool.agent->index);
  *out = add(allocation)->base;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t Memory::free(uint64_t address, Allocation* gone) {
  Allocation* allocation = starting_at(address);
  if (allocation == nullptr || allocation->type != Allocation::Type::kPool)
    return HSA_STATUS_ERROR_INVALID_ALLOCATION;
  *gone = *allocation;
  remove(allocation);
  return HSA_STATUS_SUCCESS;
}

Allocation* Memory::starting_at(uint64_t address) {
  const auto at = by_address_.find(address);
  return at == by_address_.end() ? nullptr : &at->second;
}

Allocation* Memory::around(uint64_t address) {
  auto at = by_address_.upper_bound(address);
  if (at == by_address_.begin()) return nullptr;
  --at;
  return address - at->first < at->second.bytes ? &at->second : nullptr;
}

Allocation* Memory::add(Allocation allocation) {
  Allocation& kept = by_address_[allocation.base];
  kept = std::move(allocation);
  return &kept;
}

void Memory::remove(Allocation* allocation) {
  Account& account = Runtime::get().account();
  if (allocation->fragment) {
    allocation->pool->heap.give_back(account, allocation->base);
  } else if (allocation->chunk.base != 0) {
    drop_chunk(account, &allocation->chunk);
  }
  by_address_.erase(allocation->base);
}

Chunk* Memory::chunk_of(Allocation* allocation, bool alone) {
  if (!allocation->fragment) return &allocation->chunk;
  FragmentHeap& heap = allocation->pool->heap;
  return alone ? heap.retire(Runtime::get().account(), allocation->base)
               : heap.chunk_around(allocation->base);
}

void Memory::clear() {
  Account& account = Runtime::get().account();
  vmem().clear();
  while (!by_address_.empty()) remove(&by_address_.begin()->second);
  for (const auto& agent : Runtime::get().agents()) {
    for (const auto& pool : agent->pools) pool->heap.clear(account);
    evict_svm(*agent);
  }
}

}  // namespace sim
