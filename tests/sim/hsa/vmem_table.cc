// The tables of handles, reservations and mappings of one process. Mapped addresses are memory of
// their own each time: what was written through one mapping is not seen through another.
#include "sim/hsa/vmem_table.h"

#include <sys/mman.h>

namespace sim {

Vmem& vmem() {
  static Vmem* const table = new Vmem;
  return *table;
}

uint64_t Vmem::add(const Physical& physical, Pool* pool, uint32_t type) {
  const uint64_t handle = next_handle_++;
  blocks_[handle] = {physical, pool, type, 1, 0};
  return handle;
}

Vmem::Block* Vmem::find(uint64_t handle) {
  Block* block = mapped(handle);
  return block != nullptr && block->references != 0 ? block : nullptr;
}

Vmem::Block* Vmem::mapped(uint64_t handle) {
  const auto found = blocks_.find(handle);
  return found == blocks_.end() ? nullptr : &found->second;
}

void Vmem::release(uint64_t handle) {
  --blocks_[handle].references;
  settle(handle);
}

void Vmem::settle(uint64_t handle) {
  const auto found = blocks_.find(handle);
  if (found->second.references != 0 || found->second.mappings != 0) return;
  Runtime::get().account().drop(&found->second.physical);
  blocks_.erase(found);
}

hsa_status_t Vmem::reserve(uint64_t bytes, uint64_t wanted, uint64_t alignment, uint64_t* out) {
  const uint64_t base = map_addresses(bytes, alignment, false, wanted);
  if (base == 0) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  reservations_[base] = bytes;
  *out = base;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t Vmem::unreserve(uint64_t address, uint64_t bytes) {
  const auto found = reservations_.find(address);
  if (found == reservations_.end()) return HSA_STATUS_ERROR_INVALID_ALLOCATION;
  if (found->second != bytes) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const auto mapping = mappings_.lower_bound(address);
  if (mapping != mappings_.end() && mapping->first < address + bytes)
    return HSA_STATUS_ERROR_RESOURCE_FREE;
  unmap_addresses(address, bytes);
  reservations_.erase(found);
  return HSA_STATUS_SUCCESS;
}

hsa_status_t Vmem::map(uint64_t address, uint64_t bytes, uint64_t handle) {
  Block* block = find(handle);
  if (block == nullptr || block->physical.bytes != bytes) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  auto reservation = reservations_.upper_bound(address);
  if (reservation == reservations_.begin()) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  --reservation;
  const uint64_t offset = address - reservation->first;
  if (offset > reservation->second || bytes > reservation->second - offset)
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const auto after = mappings_.lower_bound(address);
  uint64_t start = 0;
  if ((after != mappings_.end() && after->first < address + bytes) ||
      around(address, &start) != nullptr)
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  void* const at = reinterpret_cast<void*>(address);
  if (mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  mappings_[address] = {bytes, handle, {}};
  ++block->mappings;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t Vmem::unmap(uint64_t address, uint64_t bytes) {
  const auto found = mappings_.find(address);
  if (found == mappings_.end()) return HSA_STATUS_ERROR_INVALID_ALLOCATION;
  if (found->second.bytes != bytes) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const uint64_t handle = found->second.handle;
  // Addresses without memory again, as they were reserved.
  if (mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
    return HSA_STATUS_ERROR;
  mappings_.erase(found);
  --blocks_[handle].mappings;
  settle(handle);
  return HSA_STATUS_SUCCESS;
}

Vmem::Mapping* Vmem::at(uint64_t address, uint64_t bytes) {
  const auto found = mappings_.find(address);
  return found != mappings_.end() && found->second.bytes == bytes ? &found->second : nullptr;
}

Vmem::Mapping* Vmem::around(uint64_t address, uint64_t* start) {
  auto found = mappings_.upper_bound(address);
  if (found == mappings_.begin()) return nullptr;
  --found;
  if (address - found->first >= found->second.bytes) return nullptr;
  *start = found->first;
  return &found->second;
}

bool Vmem::describe(uint64_t address, Allocation* out) {
  if (const Mapping* mapping = around(address, &out->base)) {
    const Block& block = blocks_[mapping->handle];
    out->type = Allocation::Type::kMapped;
    out->bytes = mapping->bytes;
    out->pool = block.pool;
    out->owner = block.pool->agent;
    for (const auto& [index, permission] : mapping->access) {
      if (permission != 0) out->accessible.set(index);
    }
    return true;
  }
  auto reservation = reservations_.upper_bound(address);
  if (reservation == reservations_.begin()) return false;
  --reservation;
  if (address - reservation->first >= reservation->second) return false;
  out->type = Allocation::Type::kReserved;
  out->base = reservation->first;
  out->bytes = reservation->second;
  return true;
}

void Vmem::clear() {
  mappings_.clear();
  for (auto& [handle, block] : blocks_) Runtime::get().account().drop(&block.physical);
  blocks_.clear();
  for (const auto& [base, bytes] : reservations_) unmap_addresses(base, bytes);
  reservations_.clear();
}

}  // namespace sim
