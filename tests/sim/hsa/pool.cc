// Memory pools, and the regions of the older interface, which are the same memory under another
// name. A GPU's pools offer the whole device each; how large the processor's are is the machine's.
#include <unistd.h>

#include "sim/hsa/memory.h"

using sim::Agent;
using sim::Allocation;
using sim::answer;
using sim::Guard;
using sim::Pool;
using sim::Runtime;

namespace {

constexpr uint64_t kGroupBytes = 64 << 10;  // the local memory of one compute unit

hsa_amd_memory_pool_t handle(const Pool& pool) {
  return {reinterpret_cast<uint64_t>(&pool)};
}

uint64_t size_of(const Pool& pool) {
  if (pool.kind == Pool::Kind::kGroup) return kGroupBytes;
  if (pool.agent->gpu()) return Runtime::get().row(*pool.agent).total;
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint32_t flags_of(const Pool& pool) {
  switch (pool.kind) {
    case Pool::Kind::kFine:
      return HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED;
    case Pool::Kind::kKernarg:
      return HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED |
             HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT;
    case Pool::Kind::kCoarse:
      return HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED;
    case Pool::Kind::kGroup:
      break;
  }
  return 0;
}

hsa_status_t allocate(Pool* pool, size_t bytes, uint32_t flags, void** out) {
  uint64_t base = 0;
  const Guard guard(Runtime::get().lock());
  const hsa_status_t result = sim::memory().allocate(*pool, bytes, flags, &base);
  if (result == HSA_STATUS_SUCCESS) *out = reinterpret_cast<void*>(base);
  return result;
}

hsa_status_t release(void* address) {
  if (address == nullptr) return HSA_STATUS_SUCCESS;
  Allocation gone;
  {
    const Guard guard(Runtime::get().lock());
    const hsa_status_t result = sim::memory().free(reinterpret_cast<uint64_t>(address), &gone);
    if (result != HSA_STATUS_SUCCESS) return result;
  }
  for (const auto& [callback, data] : gone.callbacks) callback(address, data);
  return HSA_STATUS_SUCCESS;
}

}  // namespace

SIM_API hsa_status_t hsa_amd_agent_iterate_memory_pools(
    hsa_agent_t agent, hsa_status_t (*callback)(hsa_amd_memory_pool_t, void*), void* data) {
  SIM_CALL(hsa_amd_agent_iterate_memory_pools);
  if (callback == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Agent* found = Runtime::get().find(agent);
  if (found == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  for (const auto& pool : found->pools) {
    const hsa_status_t result = callback(handle(*pool), data);
    if (result != HSA_STATUS_SUCCESS) return result;
  }
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_memory_pool_get_info(hsa_amd_memory_pool_t given,
                                                  hsa_amd_memory_pool_info_t attribute,
                                                  void* value) {
  SIM_CALL(hsa_amd_memory_pool_get_info);
  if (value == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Pool* pool = Runtime::get().find_pool(given.handle);
  if (pool == nullptr) return static_cast<hsa_status_t>(HSA_STATUS_ERROR_INVALID_MEMORY_POOL);
  const bool global = pool->kind != Pool::Kind::kGroup;
  const bool gpu = pool->agent->gpu();
  switch (static_cast<uint32_t>(attribute)) {
    case HSA_AMD_MEMORY_POOL_INFO_SEGMENT:
      return answer(value, global ? HSA_AMD_SEGMENT_GLOBAL : HSA_AMD_SEGMENT_GROUP);
    case HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS:
      return answer(value, flags_of(*pool));
    case HSA_AMD_MEMORY_POOL_INFO_SIZE:
    case HSA_AMD_MEMORY_POOL_INFO_ALLOC_MAX_SIZE:
      return answer<size_t>(value, size_of(*pool));
    case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED:
      return answer(value, global);
    case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_GRANULE:
    case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALIGNMENT:
      return answer<size_t>(value, global ? sim::kGrain : 0);
    case sim::kPoolRecGranule:
      return answer<size_t>(value, !global ? 0 : gpu ? sim::kHugePage : sim::kGrain);
    case HSA_AMD_MEMORY_POOL_INFO_ACCESSIBLE_BY_ALL:
      return answer(value, !gpu);
    case sim::kPoolLocation:
      return answer<uint32_t>(value, gpu ? 1 : 0);
    default:
      sim::unanswered("hsa_amd_memory_pool_get_info", attribute);
      return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
}

SIM_API hsa_status_t hsa_amd_memory_pool_allocate(hsa_amd_memory_pool_t given, size_t bytes,
                                                  uint32_t flags, void** out) {
  SIM_CALL(hsa_amd_memory_pool_allocate);
  if (bytes == 0 || out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  Pool* pool = Runtime::get().find_pool(given.handle);
  if (pool == nullptr) return static_cast<hsa_status_t>(HSA_STATUS_ERROR_INVALID_MEMORY_POOL);
  return allocate(pool, bytes, flags, out);
}

SIM_API hsa_status_t hsa_amd_memory_pool_free(void* address) {
  SIM_CALL(hsa_amd_memory_pool_free);
  return release(address);
}

SIM_API hsa_status_t hsa_amd_memory_pool_can_migrate(hsa_amd_memory_pool_t from,
                                                     hsa_amd_memory_pool_t to, bool* out) {
  SIM_CALL(hsa_amd_memory_pool_can_migrate);
  if (out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  if (Runtime::get().find_pool(from.handle) == nullptr ||
      Runtime::get().find_pool(to.handle) == nullptr)
    return static_cast<hsa_status_t>(HSA_STATUS_ERROR_INVALID_MEMORY_POOL);
  *out = false;
  return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
}

SIM_API hsa_status_t hsa_amd_agent_memory_pool_get_info(hsa_agent_t given_agent,
                                                        hsa_amd_memory_pool_t given,
                                                        hsa_amd_agent_memory_pool_info_t attribute,
                                                        void* value) {
  SIM_CALL(hsa_amd_agent_memory_pool_get_info);
  if (value == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Agent* agent = Runtime::get().find(given_agent);
  if (agent == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  const Pool* pool = Runtime::get().find_pool(given.handle);
  if (pool == nullptr) return static_cast<hsa_status_t>(HSA_STATUS_ERROR_INVALID_MEMORY_POOL);
  const bool own = pool->agent == agent;
  switch (attribute) {
    case HSA_AMD_AGENT_MEMORY_POOL_INFO_ACCESS: {
      // The processor reaches device memory through a large PCI window; group memory is private.
      if (pool->kind == Pool::Kind::kGroup && !own)
        return answer(value, HSA_AMD_MEMORY_POOL_ACCESS_NEVER_ALLOWED);
      const bool at_once = own || (!pool->agent->gpu() && !agent->gpu());
      return answer(value, at_once ? HSA_AMD_MEMORY_POOL_ACCESS_ALLOWED_BY_DEFAULT
                                   : HSA_AMD_MEMORY_POOL_ACCESS_DISALLOWED_BY_DEFAULT);
    }
    case HSA_AMD_AGENT_MEMORY_POOL_INFO_NUM_LINK_HOPS:
      return answer<uint32_t>(value, own ? 0 : 1);
    case HSA_AMD_AGENT_MEMORY_POOL_INFO_LINK_INFO: {
      if (own) return HSA_STATUS_SUCCESS;
      hsa_amd_memory_pool_link_info_t link = {};
      link.min_latency = link.max_latency = 10;
      link.min_bandwidth = link.max_bandwidth = 64000;
      link.atomic_support_32bit = link.atomic_support_64bit = link.coherent_support = true;
      const bool between_gpus = agent->gpu() && pool->agent->gpu();
      link.link_type = between_gpus ? HSA_AMD_LINK_INFO_TYPE_XGMI : HSA_AMD_LINK_INFO_TYPE_PCIE;
      link.numa_distance = between_gpus ? 15 : 20;
      return answer(value, link);
    }
    default:
      sim::unanswered("hsa_amd_agent_memory_pool_get_info", attribute);
      return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
}

SIM_API hsa_status_t hsa_agent_iterate_regions(hsa_agent_t agent,
                                               hsa_status_t (*callback)(hsa_region_t, void*),
                                               void* data) {
  SIM_CALL(hsa_agent_iterate_regions);
  if (callback == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Agent* found = Runtime::get().find(agent);
  if (found == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  for (const auto& pool : found->pools) {
    const hsa_status_t result = callback({handle(*pool).handle}, data);
    if (result != HSA_STATUS_SUCCESS) return result;
  }
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_region_get_info(hsa_region_t region, hsa_region_info_t attribute,
                                         void* value) {
  SIM_CALL(hsa_region_get_info);
  if (value == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Pool* pool = Runtime::get().find_pool(region.handle);
  if (pool == nullptr) return HSA_STATUS_ERROR_INVALID_REGION;
  const bool global = pool->kind != Pool::Kind::kGroup;
  switch (static_cast<uint32_t>(attribute)) {
    case HSA_REGION_INFO_SEGMENT:
      return answer(value, global ? HSA_REGION_SEGMENT_GLOBAL : HSA_REGION_SEGMENT_GROUP);
    case HSA_REGION_INFO_GLOBAL_FLAGS:
      return answer(value, flags_of(*pool));
    case HSA_REGION_INFO_SIZE:
    case HSA_REGION_INFO_ALLOC_MAX_SIZE:
      return answer<size_t>(value, size_of(*pool));
    case HSA_REGION_INFO_ALLOC_MAX_PRIVATE_WORKGROUP_SIZE:
      return answer<uint32_t>(value, 0);
    case HSA_REGION_INFO_RUNTIME_ALLOC_ALLOWED:
      return answer(value, global);
    case HSA_REGION_INFO_RUNTIME_ALLOC_GRANULE:
    case HSA_REGION_INFO_RUNTIME_ALLOC_ALIGNMENT:
      return answer<size_t>(value, global ? sim::kGrain : 0);
    case HSA_AMD_REGION_INFO_HOST_ACCESSIBLE:
      return answer(value, !pool->agent->gpu());
    default:
      sim::unanswered("hsa_region_get_info", attribute);
      return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
}

SIM_API hsa_status_t hsa_memory_allocate(hsa_region_t region, size_t bytes, void** out) {
  SIM_CALL(hsa_memory_allocate);
  if (bytes == 0 || out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  Pool* pool = Runtime::get().find_pool(region.handle);
  if (pool == nullptr) return HSA_STATUS_ERROR_INVALID_REGION;
  return allocate(pool, bytes, 0, out);
}

SIM_API hsa_status_t hsa_memory_free(void* address) {
  SIM_CALL(hsa_memory_free);
  return release(address);
}
