// Calls that make the runtime take memory on an agent's device without naming a size.
#pragma once

#include "hooks/hsa/hook.h"
#include "shim/charge/overhead.h"
#include "shim/charge/upper_call.h"

namespace fracgpu::hsa {

// Calls `make()` under `reserve(process, device index, api)`. Calls `unmake()` if the new object
// does not fit under the cap. `handle` is the object's handle, if a ModuleRelease will end it.
template <typename Reserve, typename Make, typename Unmake>
hsa_status_t take_overhead(const char* api, hsa_agent_t agent, Reserve reserve, Make make,
                           Unmake unmake, const void* handle = nullptr) {
  Hook hook;
  if (!hook.active()) return make();
  Process& process = hook.process();
  Context context;
  switch (place_of(process, api, Handle::agent, agent.handle, context)) {
    case Place::elsewhere:
      return make();
    case Place::refused:
      return kOutOfResources;
    case Place::capped:
      break;
  }
  OverheadReservation reservation = reserve(process, context.device_index, UpperCall::name_or(api));
  if (!reservation) return kOutOfResources;
  const hsa_status_t result = make();
  if (result == kOutOfResources) reservation.refused_by_driver();
  if (result != kSuccess) return result;
  if (reservation.made(handle)) return result;
  unmake();
  settle_overhead(process, context.device_index);
  return kOutOfResources;
}

// Settles the overhead on every device, after a call that may have given memory back on any of
// them.
[[gnu::cold]] void settle_all(Process& process);

// Calls `destroy()`, which may give memory back, and settles the overhead if it succeeds.
template <typename Destroy>
hsa_status_t give_overhead_back(Destroy destroy) {
  Hook hook;
  const hsa_status_t result = destroy();
  if (result == kSuccess && hook.active()) settle_all(hook.process());
  return result;
}

}  // namespace fracgpu::hsa
