// The tables of handles, reservations and mappings of one process.
// A mapping covers whole pages of one reservation. Unmapping takes whole mappings, as many as the
// range holds, and refuses to cut one.
#include "sim/cuda/vmm.h"

#include "sim/cuda/driver.h"

namespace sim {

Block* Vmm::add(const Physical& physical, const CUmemAllocationProp& prop) {
  auto block = std::make_unique<Block>();
  block->physical = physical;
  block->prop = prop;
  block->handle = handle_of<uint64_t>(block.get());
  block->references = 1;
  return (blocks_[block->handle] = std::move(block)).get();
}

Block* Vmm::find(uint64_t handle) {
  const auto found = blocks_.find(handle);
  return found != blocks_.end() && found->second->references != 0 ? found->second.get() : nullptr;
}

void Vmm::release(Block* block) {
  --block->references;
  settle(block);
}

void Vmm::end_use(Block* block) {
  --block->uses;
  settle(block);
}

void Vmm::settle(Block* block) {
  if (block->references != 0 || block->uses != 0) return;
  if (block->multicast != nullptr) {
    for (const auto& [where, binding] : block->multicast->bindings) end_use(binding.block);
  }
  Driver::get().account().drop(&block->physical);
  blocks_.erase(block->handle);
}

CUresult Vmm::reserve(uint64_t bytes, uint64_t alignment, uint64_t* out) {
  if (alignment < kPage) alignment = kPage;
  const uint64_t pages = bytes / kPage + alignment / kPage - 1;
  const uint64_t taken = space_.take(pages, nullptr);
  if (taken == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = (taken + alignment - 1) / alignment * alignment;
  reservations_[*out] = {bytes, taken, pages};
  return CUDA_SUCCESS;
}

CUresult Vmm::unreserve(uint64_t address, uint64_t bytes) {
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto mapped = mappings_.lower_bound(address);
  if (mapped != mappings_.end() && mapped->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  space_.give_back(found->second.taken, found->second.pages);
  reservations_.erase(found);
  return CUDA_SUCCESS;
}

CUresult Vmm::map(uint64_t address, uint64_t bytes, Block* block) {
  auto reservation = reservations_.upper_bound(address);
  if (reservation == reservations_.begin()) return CUDA_ERROR_INVALID_VALUE;
  --reservation;
  const uint64_t offset = address - reservation->first;
  if (offset > reservation->second.bytes || bytes > reservation->second.bytes - offset)
    return CUDA_ERROR_INVALID_VALUE;
  const auto after = mappings_.upper_bound(address);
  if (after != mappings_.end() && after->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  uint64_t start = 0;
  if (mapping_at(address, &start) != nullptr) return CUDA_ERROR_INVALID_VALUE;
  Mapping& mapping = mappings_[address];
  mapping.bytes = bytes;
  mapping.block = block;
  begin_use(block);
  return CUDA_SUCCESS;
}

bool Vmm::whole(uint64_t address, uint64_t bytes, Mappings::iterator* first,
                Mappings::iterator* end) {
  *first = *end = mappings_.find(address);
  uint64_t covered = 0;
  while (covered < bytes) {
    if (*end == mappings_.end() || (*end)->first != address + covered) return false;
    covered += (*end)->second.bytes;
    ++*end;
  }
  return covered == bytes;
}

CUresult Vmm::unmap(uint64_t address, uint64_t bytes) {
  Mappings::iterator at, end;
  if (!whole(address, bytes, &at, &end)) return CUDA_ERROR_INVALID_VALUE;
  while (at != end) {
    Block* const block = at->second.block;
    at = mappings_.erase(at);
    end_use(block);
  }
  return CUDA_SUCCESS;
}

CUresult Vmm::set_access(uint64_t address, uint64_t bytes, const CUmemLocation& where, int flags) {
  Mappings::iterator at, end;
  if (!whole(address, bytes, &at, &end)) return CUDA_ERROR_INVALID_VALUE;
  for (; at != end; ++at) {
    uint8_t& access = where.type == CU_MEM_LOCATION_TYPE_DEVICE ? at->second.access[where.id]
                                                                : at->second.host_access;
    access = static_cast<uint8_t>(flags);
  }
  return CUDA_SUCCESS;
}

Mapping* Vmm::mapping_at(uint64_t address, uint64_t* start) {
  auto at = mappings_.upper_bound(address);
  if (at == mappings_.begin()) return nullptr;
  --at;
  if (address - at->first >= at->second.bytes) return nullptr;
  *start = at->first;
  return &at->second;
}

}  // namespace sim
