// Walks the runtime's lists; see devices.h. Handles are looked up on every allocation, so what is
// known is an array that only grows, read without a lock. A handle that the runtime does not list
// is treated as a GPU's, so that nothing goes uncharged.
#include "hooks/hsa/devices.h"

#include <algorithm>
#include <atomic>

#include "shim/base/static_spin_lock.h"
#include "shim/process/hook_scope.h"

namespace fracgpu::hsa {
namespace {

struct Known {
  uint64_t handle;
  Handle kind;
  Owner owner;
};

constexpr int kMaxKnown = 2048;  // a GPU has one agent and not ten pools and regions

struct Table {
  std::atomic<int> known_count{0};
  std::atomic<int> device_count{0};
  Known known[kMaxKnown] = {};
  Device devices[kMaxDevices];
};
constinit Table table;  // zero to begin with: a page of it is there once it is needed
constinit StaticSpinLock walking;

int find(Handle kind, uint64_t handle) {
  const int count = table.known_count.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i) {
    const Known& known = table.known[i];
    if (known.handle == handle && known.kind == kind) return i;
  }
  return -1;
}

void enter(Handle kind, uint64_t handle, Owner owner) {
  const int count = table.known_count.load(std::memory_order_relaxed);
  if (count == kMaxKnown || find(kind, handle) >= 0) return;
  table.known[count] = {handle, kind, owner};
  table.known_count.store(count + 1, std::memory_order_release);
}

// A pool's memory is charged as that of a device if it is global memory of a GPU. ROCr suballocates
// from blocks of each pool separately; `next` is the walk's next number of one.
struct Walk {
  int device = -1;
  int next = 0;
};

hsa_status_t enter_pool(hsa_amd_memory_pool_t pool, void* data) {
  auto& walk = *static_cast<Walk*>(data);
  int number = walk.device;
  int segment = 0;
  const bool elsewhere =
      real::hsa_amd_memory_pool_get_info(pool, kPoolSegment, &segment) == kSuccess &&
      segment != kPoolIsGlobal;
  if (elsewhere) number = -1;
  size_t bytes = 0;
  if (number >= 0 && real::hsa_amd_memory_pool_get_info(pool, kPoolSize, &bytes) == kSuccess) {
    // Coarse- and fine-grained pools are the same memory.
    uint64_t& physical = table.devices[number].physical;
    physical = std::max<uint64_t>(physical, bytes);
  }
  enter(Handle::pool, pool.handle, {number, std::min(walk.next, BlockCache::kPools - 1)});
  if (number >= 0) ++walk.next;
  return kSuccess;
}

hsa_status_t enter_region(hsa_region_t region, void* data) {
  int segment = 0;
  const bool elsewhere = real::hsa_region_get_info(region, kRegionSegment, &segment) == kSuccess &&
                         segment != kRegionIsGlobal;
  // The runtime calls a pool and its region by the same handle.
  auto& walk = *static_cast<Walk*>(data);
  const int pool = find(Handle::pool, region.handle);
  const int number = pool >= 0 ? table.known[pool].owner.pool : walk.next;
  enter(Handle::region, region.handle,
        {elsewhere ? -1 : walk.device, std::min(number, BlockCache::kPools - 1)});
  if (!elsewhere && pool < 0) ++walk.next;
  return kSuccess;
}

int number_of(hsa_agent_t agent) {
  int type = 0;
  if (real::hsa_agent_get_info(agent, kAgentDevice, &type) == kSuccess && type != kDeviceIsGpu) {
    return -1;
  }
  const int count = table.device_count.load(std::memory_order_relaxed);
  for (int i = 0; i < count; ++i) {
    if (table.devices[i].agent.handle == agent.handle) return i;
  }
  if (count == kMaxDevices) return -1;
  Device& device = table.devices[count];
  device = Device{};
  device.agent = agent;
  uint32_t node = 0;
  if (real::hsa_agent_get_info(agent, kAgentDriverNode, &node) == kSuccess) {
    kfd::key_of_node(node, device.key);
  }
  // A device that the kernel does not show is not in the ledger either; it only needs a slot.
  int index = -1;
  const bool known = kfd::index_of(device.key.c_str(), index) && index < kMostOfMachine;
  device.slot = slot_of(known ? index : kMostOfMachine + count % kMostOfMachine);
  real::hsa_agent_get_info(agent, kAgentBdfId, &device.bdf_id);
  real::hsa_agent_get_info(agent, kAgentDomain, &device.domain);
  char uuid[64] = "";  // the runtime writes 21 bytes
  if (real::hsa_agent_get_info(agent, kAgentUuid, uuid) == kSuccess) device.uuid.assign(uuid);
  return count;
}

hsa_status_t enter_agent(hsa_agent_t agent, void*) {
  int number = number_of(agent);
  Walk walk{.device = number};
  real::hsa_amd_agent_iterate_memory_pools(agent, reinterpret_cast<void*>(enter_pool), &walk);
  real::hsa_agent_iterate_regions(agent, reinterpret_cast<void*>(enter_region), &walk);
  enter(Handle::agent, agent.handle, {number});
  if (number == table.device_count.load(std::memory_order_relaxed)) {
    table.device_count.store(number + 1, std::memory_order_release);
  }
  return kSuccess;
}

void walk() {
  Locked<StaticSpinLock> lock(walking);
  HookScope scope;
  real::hsa_iterate_agents(reinterpret_cast<void*>(enter_agent), nullptr);
}

}  // namespace

Owner owner_of(Handle kind, uint64_t handle) {
  int found = find(kind, handle);
  if (found < 0) {
    walk();
    found = find(kind, handle);
  }
  return found < 0 ? Owner{-1} : table.known[found].owner;
}

int device_count() {
  if (table.device_count.load(std::memory_order_acquire) == 0) walk();
  return table.device_count.load(std::memory_order_acquire);
}

const Device& device(int number) {
  return table.devices[number];
}

void forget_devices() {
  Locked<StaticSpinLock> lock(walking);
  table.known_count.store(0, std::memory_order_release);
  table.device_count.store(0, std::memory_order_release);
}

int device_index_of(Process& process, int number) {
  const Device& found = device(number);
  if (const int known = process.cached_device_index(found.slot); known != Process::kUnknownDevice)
    return known;
  return process.index_of_device(found.slot, found.key.c_str(), found.physical);
}

}  // namespace fracgpu::hsa
