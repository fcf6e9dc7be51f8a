// What is behind an address and who may reach it; locked host memory.
// Locking gives agents the host's own addresses, as on machines whose devices share them.
#include <algorithm>
#include <cstring>

#include "sim/hsa/memory.h"
#include "sim/hsa/vmem_table.h"

using sim::Agent;
using sim::AgentSet;
using sim::Allocation;
using sim::Guard;
using sim::PointerInfo;
using sim::Runtime;

namespace {

uint32_t type_of(const Allocation& allocation) {
  switch (allocation.type) {
    case Allocation::Type::kPool:
    case Allocation::Type::kCode:
      return HSA_EXT_POINTER_TYPE_HSA;
    case Allocation::Type::kLocked:
      return HSA_EXT_POINTER_TYPE_LOCKED;
    case Allocation::Type::kIpc:
      return HSA_EXT_POINTER_TYPE_IPC;
    case Allocation::Type::kGraphics:
      return HSA_EXT_POINTER_TYPE_GRAPHICS;
    case Allocation::Type::kReserved:
      return sim::kPointerReserved;
    case Allocation::Type::kMapped:
      return sim::kPointerVmem;
  }
  return HSA_EXT_POINTER_TYPE_UNKNOWN;
}

uint32_t global_flags(const Allocation& allocation) {
  using Kind = sim::Pool::Kind;
  if (allocation.pool == nullptr || allocation.pool->kind == Kind::kCoarse)
    return HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED;
  return allocation.pool->kind == Kind::kKernarg ? HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT |
                                                       HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED
                                                 : HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED;
}

hsa_status_t lock(void* address, size_t bytes, hsa_agent_t* agents, int count, void** out) {
  if (address == nullptr || bytes == 0 || out == nullptr || (agents == nullptr) != (count == 0))
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  *out = nullptr;
  Runtime& runtime = Runtime::get();
  AgentSet accessible;
  accessible.set(0);
  for (int i = 0; i < count; ++i) {
    const Agent* agent = runtime.find(agents[i]);
    if (agent == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
    accessible.set(agent->index);
  }
  if (count == 0) accessible.set();
  const Guard guard(runtime.lock());
  const auto base = reinterpret_cast<uint64_t>(address);
  Allocation* known = sim::memory().starting_at(base);
  if (known != nullptr && known->type == Allocation::Type::kLocked) {
    ++known->references;
    known->bytes = std::max<uint64_t>(known->bytes, bytes);
  } else if (known == nullptr) {
    Allocation allocation;
    allocation.type = Allocation::Type::kLocked;
    allocation.base = base;
    allocation.bytes = bytes;
    allocation.owner = runtime.processor();
    allocation.accessible = accessible;
    sim::memory().add(allocation);
  }
  *out = address;
  return HSA_STATUS_SUCCESS;
}

}  // namespace

SIM_API hsa_status_t hsa_amd_memory_lock(void* address, size_t bytes, hsa_agent_t* agents,
                                         int count, void** out) {
  SIM_CALL(hsa_amd_memory_lock);
  return lock(address, bytes, agents, count, out);
}

SIM_API hsa_status_t hsa_amd_memory_lock_to_pool(void* address, size_t bytes, hsa_agent_t* agents,
                                                 int count, hsa_amd_memory_pool_t pool,
                                                 uint32_t /*flags*/, void** out) {
  SIM_CALL(hsa_amd_memory_lock_to_pool);
  if (Runtime::get().find_pool(pool.handle) == nullptr)
    return static_cast<hsa_status_t>(HSA_STATUS_ERROR_INVALID_MEMORY_POOL);
  return lock(address, bytes, agents, count, out);
}

SIM_API hsa_status_t hsa_amd_memory_unlock(void* address) {
  SIM_CALL(hsa_amd_memory_unlock);
  const Guard guard(Runtime::get().lock());
  Allocation* known = sim::memory().starting_at(reinterpret_cast<uint64_t>(address));
  if (known == nullptr || known->type != Allocation::Type::kLocked)
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  if (--known->references == 0) sim::memory().remove(known);
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_agents_allow_access(uint32_t count, const hsa_agent_t* agents,
                                                 const uint32_t* flags, const void* address) {
  SIM_CALL(hsa_amd_agents_allow_access);
  if (count == 0 || agents == nullptr || flags != nullptr || address == nullptr)
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  Runtime& runtime = Runtime::get();
  AgentSet accessible;
  for (uint32_t i = 0; i < count; ++i) {
    const Agent* agent = runtime.find(agents[i]);
    if (agent == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
    accessible.set(agent->index);
  }
  const Guard guard(runtime.lock());
  Allocation* known = sim::memory().starting_at(reinterpret_cast<uint64_t>(address));
  if (known == nullptr) return HSA_STATUS_ERROR;
  known->accessible = accessible.set(known->owner->index);
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_pointer_info(const void* address, hsa_amd_pointer_info_t* out,
                                          void* (*allocate)(size_t), uint32_t* count,
                                          hsa_agent_t** accessible) {
  SIM_CALL(hsa_amd_pointer_info);
  if (address == nullptr || out == nullptr || out->size == 0)
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  Runtime& runtime = Runtime::get();
  PointerInfo info = {};
  info.size = std::min<uint32_t>(out->size, sizeof info);
  const Guard guard(runtime.lock());
  const Allocation* known = sim::memory().around(reinterpret_cast<uint64_t>(address));
  Allocation virtual_memory;
  if (known == nullptr &&
      sim::vmem().describe(reinterpret_cast<uint64_t>(address), &virtual_memory))
    known = &virtual_memory;
  AgentSet reach;
  if (known != nullptr) {
    info.type = type_of(*known);
    info.agent_base = info.host_base = reinterpret_cast<void*>(known->base);
    info.bytes = known->bytes;
    info.user_data = known->user_data;
    if (known->owner != nullptr) info.owner = sim::handle(*known->owner);
    info.global_flags = global_flags(*known);
    info.registered = true;
    reach = known->accessible;
  }
  std::memcpy(static_cast<void*>(out), &info, info.size);
  if (allocate == nullptr || count == nullptr || accessible == nullptr) return HSA_STATUS_SUCCESS;
  *count = 0;
  *accessible = static_cast<hsa_agent_t*>(allocate(runtime.agents().size() * sizeof(hsa_agent_t)));
  if (*accessible == nullptr) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  for (const auto& agent : runtime.agents()) {
    if (reach.test(agent->index)) (*accessible)[(*count)++] = sim::handle(*agent);
  }
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_pointer_info_set_userdata(const void* address, void* data) {
  SIM_CALL(hsa_amd_pointer_info_set_userdata);
  const Guard guard(Runtime::get().lock());
  Allocation* known = sim::memory().around(reinterpret_cast<uint64_t>(address));
  if (known == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  known->user_data = data;
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_register_deallocation_callback(
    void* address, hsa_amd_deallocation_callback_t callback, void* data) {
  SIM_CALL(hsa_amd_register_deallocation_callback);
  if (address == nullptr || callback == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  Allocation* known = sim::memory().around(reinterpret_cast<uint64_t>(address));
  if (known == nullptr) return HSA_STATUS_ERROR_INVALID_ALLOCATION;
  known->callbacks.emplace_back(callback, data);
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t
hsa_amd_deregister_deallocation_callback(void* address, hsa_amd_deallocation_callback_t callback) {
  SIM_CALL(hsa_amd_deregister_deallocation_callback);
  if (address == nullptr || callback == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Guard guard(Runtime::get().lock());
  Allocation* known = sim::memory().around(reinterpret_cast<uint64_t>(address));
  if (known == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const auto removed =
      std::erase_if(known->callbacks, [&](const auto& entry) { return entry.first == callback; });
  return removed != 0 ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR_INVALID_ARGUMENT;
}

SIM_API hsa_status_t hsa_memory_register(void* address, size_t bytes) {
  SIM_CALL(hsa_memory_register);
  return address == nullptr && bytes != 0 ? HSA_STATUS_ERROR_INVALID_ARGUMENT : HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_memory_deregister(void* /*address*/, size_t /*bytes*/) {
  SIM_CALL(hsa_memory_deregister);
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_memory_assign_agent(void* /*address*/, hsa_agent_t agent,
                                             hsa_access_permission_t /*access*/) {
  SIM_CALL(hsa_memory_assign_agent);
  return Runtime::get().find(agent) != nullptr ? HSA_STATUS_SUCCESS
                                               : HSA_STATUS_ERROR_INVALID_AGENT;
}
