// Common start of all HSA hooks: whether to charge the call, and to which device.
#pragma once

#include "hooks/hsa/devices.h"
#include "hooks/library_hook.h"
#include "shim/tracking/block_cache.h"

namespace fracgpu::hsa {

using Hook = LibraryHook<runtime_library>;

enum class Place {
  elsewhere,  // not on a capped device: pass the call on
  refused,    // nothing may be allocated there; the reason was reported
  capped,
};

// The runtime's overhead on a device without a usage observation yet: heaps and queues of a HIP
// process. KFD's count corrects it. tests/hardware.sh measures it, as amd.runtime_bytes.
inline constexpr uint64_t kEstimatedRuntime = (16u << 20) / layout::kUnit;

// Enters a device whose runtime overhead is already charged.
Context enter_device(Process& process, int number, int device_index);

// The device index of a handle's device, for memory that is not charged to this process. Negative
// if there is none.
int device_index_of(Process& process, Handle kind, uint64_t handle);

// The size of memory that the kernel hands out in pages.
inline constexpr uint64_t kPage = 4096;
// ROCr suballocates ordinary requests of up to this size from blocks of this size.
inline constexpr uint64_t kBlock = BlockCache::kBlockUnits * layout::kUnit;
inline bool fills_block(uint64_t bytes) {
  return bytes > kBlock - kPage;
}
inline uint64_t page_units(uint64_t bytes) {
  return (bytes / kPage + (bytes % kPage != 0)) * (kPage / layout::kUnit);
}

// The owner that a thread looked up last, because allocations use the same pool again and again.
struct Remembered {
  const Process* process = nullptr;
  uint64_t epoch = 0;
  uint64_t handle = 0;
  Handle kind = Handle::agent;
  int pool = 0;
  Context context;
};
[[gnu::tls_model("initial-exec")]] extern constinit thread_local Remembered remembered;

// Finds the runtime's context on the device, if this process already has memory there. False
// otherwise.
[[gnu::cold]] bool find_context(Process& process, Handle kind, uint64_t handle, Context& context,
                                int* pool);
inline bool context_of(Process& process, Handle kind, uint64_t handle, Context& context,
                       int* pool = nullptr) {
  const Remembered& last = remembered;
  if (last.handle != handle || last.kind != kind || last.process != &process ||
      last.epoch != process.contexts.epoch()) {
    return find_context(process, kind, handle, context, pool);
  }
  context = last.context;
  if (pool != nullptr) *pool = last.pool;
  return true;
}

// Finds the place of an agent's, a pool's or a region's memory, for a call that takes memory there.
// `context` stands for the runtime on that device. The first use charges the runtime's overhead
// there, unless the start of the runtime did. `pool`: see Owner.
[[gnu::cold]] Place place_at_first_use(Process& process, const char* api, Handle kind,
                                       uint64_t handle, Context& context, int* pool);
inline Place place_of(Process& process, const char* api, Handle kind, uint64_t handle,
                      Context& context, int* pool = nullptr) {
  if (context_of(process, kind, handle, context, pool)) return Place::capped;
  return place_at_first_use(process, api, kind, handle, context, pool);
}

}  // namespace fracgpu::hsa
