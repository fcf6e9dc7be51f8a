// The limits of a context. Raising four of them takes device memory.
//
// A launch raises one of them by itself. If a kernel's threads have more local memory than the
// stack limit, the driver raises the limit and takes the memory. Launches are not hooked. If the
// driver's calls to the kernel are watched, the memory is reserved there (kernel.h). Otherwise the
// limit is raised when the program gets the function, because the program needs the function for a
// launch. Memory that does not fit under the cap is refused there. If that is switched off, a
// raised limit shows that a launch happened.
#include "hooks/cuda/limits.h"

#include <algorithm>
#include <atomic>

#include "hooks/cuda/context_size.h"
#include "hooks/cuda/image_size.h"
#include "hooks/cuda/kernel.h"
#include "hooks/cuda/overhead_call.h"

namespace fracgpu::cuda {
namespace {

bool takes_memory(int limit) {
  return limit == kLimitStack || limit == kLimitPrintf || limit == kLimitHeap ||
         limit == kLimitDepth;
}

int attribute_of(CUdevice device, int attribute) {
  int value = 0;
  real::cuDeviceGetAttribute(&value, attribute, device);
  return value;
}

// In units: the growth when the bytes of each thread rise from `before` to `after`.
uint64_t growth_of_local_memory(size_t before, size_t after, CUdevice device) {
  const OwnCalls own_calls;
  const int multiprocessors = attribute_of(device, kMultiprocessors);
  const int threads = attribute_of(device, kThreadsPerMultiprocessor);
  return local_memory(after, multiprocessors, threads) -
         local_memory(before, multiprocessors, threads);
}

// In units: the most that the driver takes when a limit is raised. Printf's buffer and the heap are
// as large as the limit. A level of synchronisation takes up to 150 MB (CUDA programming guide,
// "Memory Footprint" of dynamic parallelism).
uint64_t growth_of_limit(int limit, size_t before, size_t value, CUdevice device) {
  constexpr uint64_t kLevel = 150'000'000;
  if (limit == kLimitStack) return growth_of_local_memory(before, value, device);
  uint64_t bytes = value - before;
  if (limit == kLimitDepth && __builtin_mul_overflow(bytes, kLevel, &bytes)) bytes = ~uint64_t{0};
  return linear_size(bytes).units;
}

// If RM's memory is watched, a launch itself finds room or is refused, as on a full device.
// Otherwise launches are foreseen with lazy loading: a program gets a function just before its
// first launch, as CUDA's runtime does. With eager loading the runtime gets all functions of all
// its modules, and launches only a few.
bool raises_for_functions(const Process& process, const Context& context) {
  if (const auto said = reserve_local.get(); said.has_value()) return *said;
  return loading(process) == Loading::lazy && !kernel_calls_are_watched(context.device_index);
}

// 0 if the driver does not report it.
size_t stack_limit(const Process& process) {
  const OwnCalls own_calls(process);
  size_t value = 0;
  return real::cuCtxGetLimit(&value, kLimitStack) == kSuccess ? value : 0;
}

// Calls `set()`, which raises a limit of the current context. The caller holds `Process::limits`.
template <typename Set>
CUresult raise_limit(Process& process, const Context& context, const char* api, int limit,
                     size_t before, size_t value, Set set) {
  const int device_index = context.device_index;
  // The driver takes memory for the other limits only when a kernel needs it (libcuda 535 and 550).
  if (limit != kLimitStack && kernel_calls_are_watched(device_index))
    return take_as_needed(process, device_index, api, set);
  const uint64_t charged =
      device_index >= 0 ? charged_limit(process, device_index, context.id, limit) : 0;
  if (value <= charged) return set();
  const uint64_t units =
      growth_of_limit(limit, std::max<uint64_t>(before, charged), value, context.device);
  return take_overhead(
      process, device_index, api,
      [&] {
        return OverheadReservation::for_limit(
            process, device_index, api, units,
            {.context = context.id, .limit = limit, .value = value});
      },
      set, [&] { real::cuCtxSetLimit(limit, before); });
}

}  // namespace

bool prepares_launches(const Process& process, const Context& context) {
  return !kernel_calls_are_watched(context.device_index) || raises_for_functions(process, context);
}

CUresult prepare_launches(Process& process, const char* api, size_t bytes) {
  Context context;
  if (!current_context(process, context) || context.device_index < 0) return kSuccess;
  outdate_reading(process, context.device_index);
  if (bytes <= process.contexts.local_memory(context.id).needed) return kSuccess;
  const Locked<SleepLock> alone(process.limits);
  size_t limit = stack_limit(process);
  if (limit == 0) return kSuccess;
  if (bytes > limit && raises_for_functions(process, context)) {
    const CUresult result = raise_limit(process, context, api, kLimitStack, limit, bytes, [&] {
      return on_own_account(process, [&] { return real::cuCtxSetLimit(kLimitStack, bytes); });
    });
    if (result == kOutOfMemory) return result;
    if (result == kSuccess) limit = bytes;
  }
  process.contexts.see_local_memory(context.id, limit);
  process.contexts.need_local_memory(context.id, bytes);
  return kSuccess;
}

void see_launches(Process& process, const Context& context) {
  CUcontext current = nullptr;
  if (context.device_index < 0 || !process.contexts.local_memory(context.id).may_grow()) return;
  if (real::cuCtxGetCurrent(&current) != kSuccess || current != context.handle) return;
  const size_t limit = stack_limit(process);
  if (limit <= process.contexts.local_memory(context.id).seen) return;
  process.contexts.see_local_memory(context.id, limit);
  settle_overhead(process, context.device_index);
}

CUresult cuCtxSetLimit(int limit, size_t value) {
  Hook hook;
  Context context;
  const auto set = [&] { return real::cuCtxSetLimit(limit, value); };
  if (!hook.active() || !takes_memory(limit) || !current_context(hook.process(), context) ||
      context.device_index == Process::kNotCapped) {
    return set();
  }
  Process& process = hook.process();
  // The growth is computed from the old limit, so no other thread may change that meanwhile.
  const Locked<SleepLock> alone(process.limits);
  size_t before = 0;
  if (on_own_account(process, [&] { return real::cuCtxGetLimit(&before, limit); }) != kSuccess)
    return set();
  // A launch would raise the limit again.
  if (limit == kLimitStack && raises_for_functions(process, context))
    value = std::max(value, process.contexts.local_memory(context.id).needed);
  // After a refused launch or limit, the context has no local memory: it takes that memory now.
  if (value == before && !kernel_calls_are_watched(context.device_index)) return set();
  if (value > before)
    return raise_limit(process, context, "cuCtxSetLimit", limit, before, value, set);
  if (context.device_index < 0) return set();
  // The driver gives the old memory back before it takes the new memory.
  const CUresult result = take_overhead(
      process, context.device_index, "cuCtxSetLimit",
      [&] {
        return OverheadReservation::for_limit(
            process, context.device_index, "cuCtxSetLimit", 0,
            {.context = context.id, .limit = limit, .value = before});
      },
      set, CannotUndo{});
  if (result != kSuccess) return result;
  if (limit == kLimitStack) process.contexts.see_local_memory(context.id, value);
  return result;
}

}  // namespace fracgpu::cuda
