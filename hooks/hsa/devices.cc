// Walks the runtime's lists; see devices.h. An agent whose type the runtime does not report counts
// as a GPU, so that nothing goes uncharged.
#include "hooks/hsa/devices.h"

#include <algorithm>
#include <atomic>

#include "shim/base/sleep_lock.h"
#include "shim/base/static_spin_lock.h"
#include "shim/process/hook_scope.h"

namespace fracgpu::hsa {
namespace {

struct Known {
  uint64_t handle;
  Handle kind;
  Owner owner;
};

constexpr int kMaxKnown = 2048;  // a GPU has one agent and fewer than ten pools and regions

struct Table {
  // Guarded by `reading`. A device's content may change once it was forgotten.
  int known_count = 0;
  Known known[kMaxKnown] = {};
  Device devices[kMaxDevices];
  // Every allocation reads these, without a lock.
  std::atomic<int> device_count{0};
  std::atomic<uint64_t> agents[kMaxDevices] = {};
  std::atomic<int> slots[kMaxDevices] = {};
  std::atomic<uint64_t> gpu_ids[kMaxDevices] = {};
};
constinit Table table;  // zeroed: a page takes memory only once it is used

// Only one thread walks at a time. Other threads sleep until the walk ends, because the walk calls
// the runtime, which takes its own locks. `reading` is the inner lock. No code calls the runtime
// while holding it.
constinit SleepLock walking;
constinit StaticSpinLock reading;

// The caller holds `reading`.
int find(Handle kind, uint64_t handle) {
  for (int i = 0; i < table.known_count; ++i) {
    const Known& known = table.known[i];
    if (known.handle == handle && known.kind == kind) return i;
  }
  return -1;
}

bool find_owner(Handle kind, uint64_t handle, Owner& owner) {
  Locked<StaticSpinLock> lock(reading);
  const int found = find(kind, handle);
  if (found >= 0) owner = table.known[found].owner;
  return found >= 0;
}

void enter(Handle kind, uint64_t handle, Owner owner) {
  Locked<StaticSpinLock> lock(reading);
  if (table.known_count == kMaxKnown || find(kind, handle) >= 0) return;
  table.known[table.known_count] = {handle, kind, owner};
  ++table.known_count;
}

void put_device(int number, const Device& device) {
  Locked<StaticSpinLock> lock(reading);
  table.devices[number] = device;
  table.agents[number].store(device.agent.handle, std::memory_order_release);
  table.slots[number].store(device.slot, std::memory_order_release);
  table.gpu_ids[number].store(device.gpu_id, std::memory_order_release);
}

void enter_size(int number, uint64_t bytes) {
  Locked<StaticSpinLock> lock(reading);
  // Coarse- and fine-grained pools are the same memory.
  uint64_t& physical = table.devices[number].physical;
  physical = std::max(physical, bytes);
}

// A pool's memory is charged as device memory if it is global memory of a GPU. ROCr suballocates
// from blocks of each pool separately. `next` is the number that the walk gives to the next pool.
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
    enter_size(number, bytes);
  }
  enter(Handle::pool, pool.handle, {number, std::min(walk.next, BlockCache::kPools - 1)});
  if (number >= 0) ++walk.next;
  return kSuccess;
}

hsa_status_t enter_region(hsa_region_t region, void* data) {
  int segment = 0;
  const bool elsewhere = real::hsa_region_get_info(region, kRegionSegment, &segment) == kSuccess &&
                         segment != kRegionIsGlobal;
  // A pool and its region have the same handle in the runtime.
  auto& walk = *static_cast<Walk*>(data);
  Owner pool{-1, walk.next};
  const bool known = find_owner(Handle::pool, region.handle, pool);
  enter(Handle::region, region.handle,
        {elsewhere ? -1 : walk.device, std::min(pool.pool, BlockCache::kPools - 1)});
  if (!elsewhere && !known) ++walk.next;
  return kSuccess;
}

// Uses KFD's own number, which the runtime reports since 5.7. Older runtimes report domain and
// location. DRIVER_NODE_ID does not identify the device: libhsakmt renumbers the nodes that a
// container may use.
bool find_key(hsa_agent_t agent, kfd::Key& key) {
  uint32_t gpu_id = 0, domain = 0, location = 0;
  if (real::hsa_agent_get_info(agent, kAgentDriverUid, &gpu_id) == kSuccess && gpu_id != 0) {
    return kfd::key_of_gpu_id(gpu_id, key);
  }
  return real::hsa_agent_get_info(agent, kAgentDomain, &domain) == kSuccess &&
         real::hsa_agent_get_info(agent, kAgentBdfId, &location) == kSuccess &&
         kfd::key_of_bdf(uint64_t{domain} << 32 | location, key);
}

int number_of(hsa_agent_t agent) {
  int type = 0;
  if (real::hsa_agent_get_info(agent, kAgentDevice, &type) == kSuccess && type != kDeviceIsGpu) {
    return -1;
  }
  const int count = table.device_count.load(std::memory_order_relaxed);
  for (int i = 0; i < count; ++i) {
    if (table.agents[i].load(std::memory_order_relaxed) == agent.handle) return i;
  }
  if (count == kMaxDevices) return -1;
  Device device;
  device.agent = agent;
  find_key(agent, device.key);
  kfd::gpu_id_of(device.key.c_str(), device.gpu_id);
  // A device that the kernel does not show is not in the ledger either. It only needs a slot.
  int index = -1;
  const bool known = kfd::index_of(device.key.c_str(), index) && index < kMostOfMachine;
  device.slot = slot_of(known ? index : kMostOfMachine + count % kMostOfMachine);
  real::hsa_agent_get_info(agent, kAgentBdfId, &device.bdf_id);
  real::hsa_agent_get_info(agent, kAgentDomain, &device.domain);
  char uuid[64] = "";  // the runtime writes 21 bytes
  if (real::hsa_agent_get_info(agent, kAgentUuid, uuid) == kSuccess) device.uuid.assign(uuid);
  put_device(count, device);
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
  Locked<SleepLock> lock(walking);
  HookScope scope;
  real::hsa_iterate_agents(reinterpret_cast<void*>(enter_agent), nullptr);
}

}  // namespace

Owner owner_of(Handle kind, uint64_t handle) {
  Owner owner{-1};
  if (!find_owner(kind, handle, owner)) {
    walk();
    find_owner(kind, handle, owner);
  }
  return owner;
}

int device_count() {
  if (table.device_count.load(std::memory_order_acquire) == 0) walk();
  return table.device_count.load(std::memory_order_acquire);
}

Device device(int number) {
  Locked<StaticSpinLock> lock(reading);
  return table.devices[number];
}

hsa_agent_t agent_of(int number) {
  return {table.agents[number].load(std::memory_order_acquire)};
}

void forget_devices() {
  Locked<SleepLock> no_walk(walking);
  Locked<StaticSpinLock> lock(reading);
  table.known_count = 0;
  table.device_count.store(0, std::memory_order_release);
}

int device_index_of(Process& process, int number) {
  const int slot = table.slots[number].load(std::memory_order_acquire);
  if (const int known = process.cached_device_index(slot); known != Process::kUnknownDevice)
    return known;
  const Device found = device(number);
  return process.index_of_device(found.slot, found.key.c_str(), found.physical);
}

namespace {

int known_device_index(const Process& process, const std::atomic<uint64_t> (&names)[kMaxDevices],
                       uint64_t name) {
  const int count = table.device_count.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i) {
    if (names[i].load(std::memory_order_acquire) != name) continue;
    return process.cached_device_index(table.slots[i].load(std::memory_order_acquire));
  }
  return Process::kUnknownDevice;
}

}  // namespace

int known_device_index(const Process& process, hsa_agent_t agent) {
  return known_device_index(process, table.agents, agent.handle);
}

int known_device_index(const Process& process, uint64_t gpu_id) {
  return known_device_index(process, table.gpu_ids, gpu_id);
}

hsa_amd_memory_pool_t pool_of(const char* device_key) {
  Locked<StaticSpinLock> lock(reading);
  for (int i = 0; i < table.known_count; ++i) {
    const Known& known = table.known[i];
    if (known.kind == Handle::pool && known.owner.device >= 0 &&
        table.devices[known.owner.device].key.view() == device_key) {
      return {known.handle};
    }
  }
  return {};
}

}  // namespace fracgpu::hsa
