// Reports of a device's memory: the sizes of agents, pools and regions.
//
// The runtime answers first, so that errors are its own. Then a size becomes the cap, and available
// memory becomes the room left under it.
#include <algorithm>

#include "hooks/hsa/hook.h"

namespace fracgpu::hsa {
namespace {

// The tenant's view of a handle's device. False if the device is not capped. HIP asks for each pool
// at its start, so `used` is only looked up if the process does not use the device yet.
bool cap_of(Process& process, Handle kind, uint64_t handle, TenantView& view) {
  const int number = owner_of(kind, handle).device;
  if (number < 0) return false;
  const Device found = device(number);
  const int device_index = process.cached_device_index(found.slot);
  if (device_index < 0) return process.view(found.key.c_str(), found.physical, view);
  view.cap = process.ledger.cap(device_index) * layout::kUnit;
  return true;
}

// The same for an agent, always with `used`. HIP asks whenever the program asks HIP for the free
// memory. So for a device that the process uses, this does not read the kernel's files.
bool view_of(Process& process, hsa_agent_t agent, TenantView& view) {
  const int device_index = known_device_index(process, agent);
  if (device_index == Process::kNotCapped) return false;
  if (device_index < 0) return cap_of(process, Handle::agent, agent.handle, view);
  view.cap = process.ledger.cap(device_index) * layout::kUnit;
  view.used = process.tenant_held(device_index);
  return true;
}

template <typename Size>
void lower(void* value, uint64_t bytes) {
  auto* const size = static_cast<Size*>(value);
  *size = std::min<Size>(*size, bytes);
}

}  // namespace

hsa_status_t hsa_agent_get_info(hsa_agent_t agent, int attribute, void* value) {
  Hook hook;
  const hsa_status_t result = real::hsa_agent_get_info(agent, attribute, value);
  TenantView view;
  if (result == kSuccess && attribute == kAgentMemoryAvailable && hook.active() &&
      value != nullptr && view_of(hook.process(), agent, view)) {
    lower<uint64_t>(value, view.cap - std::min(view.cap, view.used));
  }
  return result;
}

hsa_status_t hsa_amd_memory_pool_get_info(hsa_amd_memory_pool_t pool, int attribute, void* value) {
  Hook hook;
  const hsa_status_t result = real::hsa_amd_memory_pool_get_info(pool, attribute, value);
  const bool size = attribute == kPoolSize || attribute == kPoolLargestAllocation;
  TenantView view;
  if (result == kSuccess && size && hook.active() && value != nullptr &&
      cap_of(hook.process(), Handle::pool, pool.handle, view)) {
    lower<size_t>(value, view.cap);
  }
  return result;
}

hsa_status_t hsa_region_get_info(hsa_region_t region, int attribute, void* value) {
  Hook hook;
  const hsa_status_t result = real::hsa_region_get_info(region, attribute, value);
  const bool size = attribute == kRegionSize || attribute == kRegionLargestAllocation;
  TenantView view;
  if (result == kSuccess && size && hook.active() && value != nullptr &&
      cap_of(hook.process(), Handle::region, region.handle, view)) {
    lower<size_t>(value, view.cap);
  }
  return result;
}

}  // namespace fracgpu::hsa
