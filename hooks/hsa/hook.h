// What every HSA hook begins with: is this call ours to charge, and on which device?
#pragma once

#include "hooks/hsa/devices.h"
#include "hooks/library_hook.h"

namespace fracgpu::hsa {

using Hook = LibraryHook<runtime_library>;

enum class Place {
  elsewhere,  // not on a capped device: pass the call on
  refused,    // nothing may be allocated there; the reason was reported
  capped,
};

// The runtime's overhead on a device where no usage has been observed yet: heaps and queues of a
// HIP process. Corrected by KFD's count; tests/hardware.sh measures it, as amd.runtime_bytes.
inline constexpr uint64_t kEstimatedRuntime = (16u << 20) / layout::kUnit;

// Enters a device on which the runtime's overhead is charged already.
Context enter_device(Process& process, int number, int device_index);

// The device index of the device, for memory that is not charged to this process; negative when it
// has none.
int device_index_of(Process& process, Handle kind, uint64_t handle);

// Memory that the kernel hands out in pages.
inline constexpr uint64_t kPage = 4096;
inline uint64_t page_units(uint64_t bytes) {
  return (bytes / kPage + (bytes % kPage != 0)) * (kPage / layout::kUnit);
}

// The owner that a thread looked up last: allocations use the same pool again and again.
struct Remembered {
  const Process* process = nullptr;
  uint64_t epoch = 0;
  uint64_t handle = 0;
  Handle kind = Handle::agent;
  int pool = 0;
  Context context;
};
[[gnu::tls_model("initial-exec")]] extern constinit thread_local Remembered remembered;

// The runtime on the device that already has memory of this process; false when it has none.
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

// Where memory of an agent, a pool or a region is, for a call that takes some; `context` stands for
// the runtime on that device. The runtime's overhead there is charged at the first use, unless it
// was when the runtime was started. `pool`: see Owner.
[[gnu::cold]] Place place_at_first_use(Process& process, const char* api, Handle kind,
                                       uint64_t handle, Context& context, int* pool);
inline Place place_of(Process& process, const char* api, Handle kind, uint64_t handle,
                      Context& context, int* pool = nullptr) {
  if (context_of(process, kind, handle, context, pool)) return Place::capped;
  return place_at_first_use(process, api, kind, handle, context, pool);
}

}  // namespace fracgpu::hsa
