// The calls of virtual memory management. The headers of 5.2 do not have them; prototypes and
// statuses are those of hsa_ext_amd.h since ROCm 6.1.
#include <cstring>

#include "sim/hsa/vmem_table.h"

using sim::Agent;
using sim::Guard;
using sim::Pool;
using sim::Runtime;
using sim::vmem;
using sim::Vmem;
using sim::VmemHandle;

namespace {

hsa_status_t reserve(void** out, size_t bytes, uint64_t wanted, uint64_t alignment) {
  if (out == nullptr || bytes == 0 || bytes % sim::kGrain != 0)
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  if (alignment == 0) alignment = bytes >= sim::kHugePage ? sim::kHugePage : sim::kGrain;
  if (alignment < sim::kGrain || (alignment & (alignment - 1)) != 0)
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  uint64_t base = 0;
  const Guard guard(Runtime::get().lock());
  const hsa_status_t result = vmem().reserve(bytes, wanted, alignment, &base);
  if (result == HSA_STATUS_SUCCESS) *out = reinterpret_cast<void*>(base);
  return result;
}

// The pool that imported memory would have come from.
Pool* coarse_pool_of(int device) {
  for (const auto& agent : Runtime::get().agents()) {
    if (agent->device != device) continue;
    for (const auto& pool : agent->pools) {
      if (pool->kind == Pool::Kind::kCoarse) return pool.get();
    }
  }
  return nullptr;
}

// A handle to what was imported. The runtime's lock is held.
hsa_status_t add_imported(sim::Physical physical, VmemHandle* out) {
  Pool* pool = coarse_pool_of(physical.device);
  if (pool == nullptr) {
    Runtime::get().account().drop(&physical);
    return HSA_STATUS_ERROR;
  }
  constexpr uint32_t kPinned = 1;
  out->handle = vmem().add(physical, pool, kPinned);
  return HSA_STATUS_SUCCESS;
}

}  // namespace

SIM_API hsa_status_t hsa_amd_vmem_address_reserve(void** out, size_t bytes, uint64_t address,
                                                  uint64_t /*flags*/) {
  SIM_CALL(hsa_amd_vmem_address_reserve);
  return reserve(out, bytes, address, 0);
}

SIM_API hsa_status_t hsa_amd_vmem_address_reserve_align(void** out, size_t bytes, uint64_t address,
                                                        uint64_t alignment, uint64_t /*flags*/) {
  SIM_CALL(hsa_amd_vmem_address_reserve_align);
  return reserve(out, bytes, address, alignment);
}

SIM_API hsa_status_t hsa_amd_vmem_address_free(void* address, size_t bytes) {
  SIM_CALL(hsa_amd_vmem_address_free);
  const Guard guard(Runtime::get().lock());
  return vmem().unreserve(reinterpret_cast<uint64_t>(address), bytes);
}

SIM_API hsa_status_t hsa_amd_vmem_handle_create(hsa_amd_memory_pool_t given, size_t bytes,
                                                uint32_t type, uint64_t /*flags*/,
                                                VmemHandle* out) {
  SIM_CALL(hsa_amd_vmem_handle_create);
  if (out == nullptr || bytes == 0 || bytes % sim::kGrain != 0)
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  Pool* pool = Runtime::get().find_pool(given.handle);
  if (pool == nullptr) return static_cast<hsa_status_t>(HSA_STATUS_ERROR_INVALID_MEMORY_POOL);
  if (pool->kind == Pool::Kind::kGroup) return HSA_STATUS_ERROR_INVALID_ALLOCATION;
  const Guard guard(Runtime::get().lock());
  sim::Physical physical;
  if (!sim::memory().take_physical(*pool->agent, bytes, &physical))
    return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  out->handle = vmem().add(physical, pool, type);
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_vmem_handle_release(VmemHandle given) {
  SIM_CALL(hsa_amd_vmem_handle_release);
  const Guard guard(Runtime::get().lock());
  if (vmem().find(given.handle) == nullptr) return HSA_STATUS_ERROR_INVALID_ALLOCATION;
  vmem().release(given.handle);
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_vmem_map(void* address, size_t bytes, size_t offset, VmemHandle given,
                                      uint64_t /*flags*/) {
  SIM_CALL(hsa_amd_vmem_map);
  // An offset is "currently unsupported", says the interface.
  if (address == nullptr || bytes == 0 || offset != 0) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  return vmem().map(reinterpret_cast<uint64_t>(address), bytes, given.handle);
}

SIM_API hsa_status_t hsa_amd_vmem_unmap(void* address, size_t bytes) {
  SIM_CALL(hsa_amd_vmem_unmap);
  const Guard guard(Runtime::get().lock());
  return vmem().unmap(reinterpret_cast<uint64_t>(address), bytes);
}

SIM_API hsa_status_t hsa_amd_vmem_set_access(void* address, size_t bytes,
                                             const sim::AccessDescription* wanted, size_t count) {
  SIM_CALL(hsa_amd_vmem_set_access);
  if (wanted == nullptr || count == 0) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  for (size_t i = 0; i < count; ++i) {
    if (Runtime::get().find(wanted[i].agent) == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  }
  const Guard guard(Runtime::get().lock());
  Vmem::Mapping* mapping = vmem().at(reinterpret_cast<uint64_t>(address), bytes);
  if (mapping == nullptr) return HSA_STATUS_ERROR_INVALID_ALLOCATION;
  for (size_t i = 0; i < count; ++i)
    mapping->access[Runtime::get().find(wanted[i].agent)->index] = wanted[i].permissions;
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_vmem_get_access(void* address, hsa_access_permission_t* out,
                                             hsa_agent_t given) {
  SIM_CALL(hsa_amd_vmem_get_access);
  if (out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Agent* agent = Runtime::get().find(given);
  if (agent == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  const Guard guard(Runtime::get().lock());
  uint64_t start = 0;
  const Vmem::Mapping* mapping = vmem().around(reinterpret_cast<uint64_t>(address), &start);
  if (mapping == nullptr || mapping->access.count(agent->index) == 0)
    return HSA_STATUS_ERROR_INVALID_ALLOCATION;
  *out = mapping->access.at(agent->index);
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_vmem_export_shareable_handle(int* out, VmemHandle given,
                                                          uint64_t /*flags*/) {
  SIM_CALL(hsa_amd_vmem_export_shareable_handle);
  if (out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  Vmem::Block* block = vmem().find(given.handle);
  if (block == nullptr) return HSA_STATUS_ERROR_INVALID_ALLOCATION;
  sim::Account& account = Runtime::get().account();
  const uint32_t where[2] = {};
  const int file = account.share(&block->physical, sim::ObjectKind::kMemory, where)
                       ? account.descriptor(block->physical)
                       : -1;
  if (file < 0) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  *out = file;
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_vmem_import_shareable_handle(int file, VmemHandle* out) {
  SIM_CALL(hsa_amd_vmem_import_shareable_handle);
  if (out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  sim::Physical physical;
  if (!Runtime::get().account().import(file, sim::ObjectKind::kMemory, &physical))
    return HSA_STATUS_ERROR_INVALID_ALLOCATION;
  return add_imported(physical, out);
}

// A number that names the memory on every machine of a fabric; here there is this one.
SIM_API hsa_status_t hsa_amd_vmem_export_fabric_handle(sim::FabricHandle* out, VmemHandle given,
                                                       uint64_t flags) {
  SIM_CALL(hsa_amd_vmem_export_fabric_handle);
  if (out == nullptr || flags != 0) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  Vmem::Block* block = vmem().find(given.handle);
  if (block == nullptr) return HSA_STATUS_ERROR_INVALID_ALLOCATION;
  const uint32_t where[2] = {};
  if (!Runtime::get().account().share(&block->physical, sim::ObjectKind::kMemory, where))
    return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  const auto object = static_cast<uint64_t>(block->physical.object);
  std::memcpy(out->bytes, &object, sizeof object);
  std::memcpy(out->bytes + sizeof object, &block->physical.serial, sizeof block->physical.serial);
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_vmem_import_fabric_handle(sim::FabricHandle fabric, VmemHandle* out) {
  SIM_CALL(hsa_amd_vmem_import_fabric_handle);
  if (out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  uint64_t object = 0, serial = 0;
  std::memcpy(&object, fabric.bytes, sizeof object);
  std::memcpy(&serial, fabric.bytes + sizeof object, sizeof serial);
  const Guard guard(Runtime::get().lock());
  sim::Physical physical;
  if (!Runtime::get().account().import(static_cast<int>(object), serial, &physical))
    return HSA_STATUS_ERROR_INVALID_ALLOCATION;
  return add_imported(physical, out);
}

SIM_API hsa_status_t hsa_amd_vmem_retain_alloc_handle(VmemHandle* out, void* address) {
  SIM_CALL(hsa_amd_vmem_retain_alloc_handle);
  if (out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  uint64_t start = 0;
  const Vmem::Mapping* mapping = vmem().around(reinterpret_cast<uint64_t>(address), &start);
  if (mapping == nullptr) return HSA_STATUS_ERROR_INVALID_ALLOCATION;
  ++vmem().mapped(mapping->handle)->references;
  out->handle = mapping->handle;
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_vmem_get_alloc_properties_from_handle(VmemHandle given,
                                                                   hsa_amd_memory_pool_t* pool,
                                                                   uint32_t* type) {
  SIM_CALL(hsa_amd_vmem_get_alloc_properties_from_handle);
  if (pool == nullptr || type == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  const Vmem::Block* block = vmem().find(given.handle);
  if (block == nullptr) return HSA_STATUS_ERROR_INVALID_ALLOCATION;
  pool->handle = reinterpret_cast<uint64_t>(block->pool);
  *type = block->type;
  return HSA_STATUS_SUCCESS;
}
