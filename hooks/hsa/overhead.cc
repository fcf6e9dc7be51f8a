// Memory that the runtime takes at its start, without a request that names a size. It is charged by
// driver-reported usage, which the kernel has afterwards.
#include <optional>

#include "hooks/hsa/kernel.h"
#include "hooks/hsa/overhead_call.h"
#include "hooks/hsa/visible_devices.h"
#include "shim/charge/in_flight.h"
#include "shim/charge/linear.h"
#include "shim/charge/refusal.h"
#include "shim/vendor/backend.h"

namespace fracgpu::hsa {
namespace {

// Whether each of the devices has a row in the ledger or can get one. On a machine of 64 devices
// they may not fit, and only devices in use get rows. What the runtime takes on another device is
// charged at its first use.
bool fit_in_ledger(Process& process, const VisibleDevices& visible) {
  if (!process.join()) return true;  // and nothing is allowed
  int wanted = 0;
  for (int i = 0; i < visible.count(); ++i) {
    wanted += process.ledger.find_device(visible[i].key().c_str()) < 0 ? 1 : 0;
  }
  return wanted <= process.ledger.free_device_rows();
}

// Whether the runtime, which has been shut down, left the device memory that the program had not
// freed. KFD reports that. ROCr 5.2 to 6.4 leave it until the process ends.
bool keeps_allocations(Process& process, const Device& device, const Context& context) {
  uint64_t bytes = 0;
  if (backend_of(device.key.c_str()).usage_of_self(device.key.c_str(), bytes)) return bytes > 0;
  bool has_any = false;
  process.allocations.for_each(
      [&](const Allocation& each) { has_any = has_any || each.context == context.id; });
  return has_any;
}

}  // namespace

void settle_all(Process& process) {
  for (int number = 0; number < device_count(); ++number) {
    Context context;
    if (context_of(process, Handle::agent, agent_of(number).handle, context)) {
      settle_overhead(process, context.device_index);
    }
  }
}

// The runtime takes memory on every visible device, and the size is known only afterwards. The call
// is refused if no capped device has room for it, or if their caps are not known. If one device has
// room, the memory taken on the others is charged beyond their caps: a full device must not keep a
// process from using another.
hsa_status_t hsa_init() {
  Hook hook;
  if (!hook.active()) return real::hsa_init();
  Process& process = hook.process();
  // Not under the lock: it waits for the loader, whose thread may wait for the lock in a
  // constructor.
  start_vendors();
  const Locked<SleepLock> alone(process.lifetimes);
  watch_kernel_calls();
  std::optional<OverheadReservation> reservations[layout::kMaxDevices];
  int capped = 0, granted = 0, faulty = 0;
  const VisibleDevices visible;
  const bool all_fit = fit_in_ledger(process, visible);
  for (int i = 0; i < visible.count(); ++i) {
    const kfd::Key key = visible[i].key();
    if (visible.index(i) >= kMostOfMachine ||
        (!all_fit && process.ledger.find_device(key.c_str()) < 0)) {
      continue;
    }
    const int device_index = process.index_of_device(slot_of(visible.index(i)), key.c_str(),
                                                     visible[i].physical_bytes());
    faulty += device_index == Process::kFault ? 1 : 0;
    if (device_index < 0) continue;
    ++capped;
    // The runtime already runs and is charged: its start calls are counted.
    if (process.contexts.any_on(device_index)) {
      ++granted;
      continue;
    }
    const uint64_t seen = process.ledger.context_size(device_index);
    reservations[device_index].emplace(process, device_index, seen != 0 ? seen : kEstimatedRuntime,
                                       "hsa_init", OverheadReservation::Kind::runtime);
    granted += *reservations[device_index] ? 1 : 0;
  }
  if (capped + faulty > 0 && granted == 0) {
    if (faulty > 0) report_fault(process, "hsa_init");
    return kOutOfResources;
  }
  const hsa_status_t result = real::hsa_init();
  if (result != kSuccess || capped == 0) return result;
  for (int number = 0; number < device_count(); ++number) {
    const int device_index = process.ledger.find_device(device(number).key.c_str());
    if (device_index < 0 || !reservations[device_index]) continue;
    // An estimate if the kernel does not report the memory. If there was no room for the estimate,
    // it is charged at the device's first use.
    const bool charged = *reservations[device_index] ? (reservations[device_index]->made(), true)
                                                     : settle_overhead(process, device_index);
    if (charged) enter_device(process, number, device_index);
  }
  return result;
}

hsa_status_t hsa_shut_down() {
  Hook hook;
  if (!hook.active() || device_count() == 0) return real::hsa_shut_down();
  Process& process = hook.process();
  // Another thread may start the runtime again, with the same handles. It must wait until the
  // outcome of this call is known.
  const Locked<SleepLock> alone(process.lifetimes);
  int device_indices[kMaxDevices];
  int ended = 0;
  {
    const InFlightScope in_flight(process);
    const hsa_status_t result = real::hsa_shut_down();
    int type = 0;
    // Calls are counted. Only the last one shuts the runtime down.
    if (result != kSuccess ||
        real::hsa_agent_get_info(agent_of(0), kAgentDevice, &type) != kNotInitialized) {
      return result;
    }
    for (int number = 0; number < device_count(); ++number) {
      const Device gone = device(number);
      Context context;
      if (process.contexts.forget(reinterpret_cast<const void*>(gone.agent.handle), context)) {
        if (!keeps_allocations(process, gone, context)) release_context(process, context);
        device_indices[ended++] = context.device_index;
      }
      process.forget_device_index(gone.slot);
    }
  }
  for (int i = 0; i < ended; ++i)
    settle_after_destroy(process, device_indices[i], kEstimatedRuntime);
  forget_devices();
  return kSuccess;
}

}  // namespace fracgpu::hsa
