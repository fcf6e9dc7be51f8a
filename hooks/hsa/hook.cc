// Finds the device of a call; see library_hook.h.
#include "hooks/hsa/hook.h"

#include "shim/charge/overhead.h"
#include "shim/charge/refusal.h"
#include "shim/charge/upper_call.h"

namespace fracgpu::hsa {

[[gnu::tls_model("initial-exec")]] constinit thread_local Remembered remembered;

namespace {

const void* key_of(int number) {
  return reinterpret_cast<const void*>(agent_of(number).handle);
}

}  // namespace

Context enter_device(Process& process, int number, int device_index) {
  return process.contexts.enter(key_of(number), number, device_index);
}

bool find_context(Process& process, Handle kind, uint64_t handle, Context& context, int* pool) {
  const uint64_t epoch = process.contexts.epoch();
  const Owner owner = owner_of(kind, handle);
  if (owner.device < 0 || !process.contexts.find(key_of(owner.device), context)) return false;
  remembered = {&process, epoch, handle, kind, owner.pool, context};
  if (pool != nullptr) *pool = owner.pool;
  return true;
}

Place place_at_first_use(Process& process, const char* api, Handle kind, uint64_t handle,
                         Context& context, int* pool) {
  const Owner owner = owner_of(kind, handle);
  const int number = owner.device;
  if (pool != nullptr) *pool = owner.pool;
  if (number < 0) return Place::elsewhere;
  api = UpperCall::name_or(api);
  const int device_index = device_index_of(process, number);
  if (device_index == Process::kNotCapped) return Place::elsewhere;
  if (device_index == Process::kFault) {
    report_fault(process, api);
    return Place::refused;
  }
  // Another thread may do the same now. Driver-reported usage is then charged once. Without it, the
  // estimate is charged twice.
  const uint64_t seen = process.ledger.context_size(device_index);
  OverheadReservation reservation(process, device_index, seen != 0 ? seen : kEstimatedRuntime, api,
                                  OverheadReservation::Kind::runtime);
  if (!reservation || !reservation.made()) return Place::refused;
  context = enter_device(process, number, device_index);
  return Place::capped;
}

int device_index_of(Process& process, Handle kind, uint64_t handle) {
  const int number = owner_of(kind, handle).device;
  return number < 0 ? Process::kNotCapped : device_index_of(process, number);
}

}  // namespace fracgpu::hsa
