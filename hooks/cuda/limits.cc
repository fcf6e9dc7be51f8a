// The limits of a context, of which four are paid with device memory when they are raised.
#include <algorithm>

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

// In units: by how much the driver's memory for stacks and other local memory grows when each
// thread that can be resident gets `after` bytes and had `before`. libcuda 535.261.03 takes just
// that, for each of 74 sizes from 1,024 to 65,536 bytes.
uint64_t growth_of_local_memory(size_t before, size_t after, CUdevice device) {
  const OwnCalls own_calls;
  const auto multiprocessors = static_cast<uint64_t>(attribute_of(device, kMultiprocessors));
  const auto threads = static_cast<uint64_t>(attribute_of(device, kThreadsPerMultiprocessor));
  const auto pages = [&](size_t bytes) {
    constexpr uint64_t kOfThread = 16, kOfMultiprocessor = 32 << 10;
    constexpr uint64_t kMost = 1 << 30;  // no device has room for more
    const auto parts = [](uint64_t size, uint64_t step) { return (size + step - 1) / step; };
    const uint64_t of_thread = parts(std::min<uint64_t>(bytes, kMost), kOfThread) * kOfThread;
    return parts(
        parts(of_thread * threads, kOfMultiprocessor) * kOfMultiprocessor * multiprocessors,
        kPageBytes);
  };
  return (pages(after) - pages(before)) * (kPageBytes / layout::kUnit);
}

// In units: what raising a limit makes the driver take at most. Printf's buffer and the heap are as
// large as the limit says; a level of synchronisation takes up to 150 MB (CUDA programming guide,
// "Memory Footprint" of dynamic parallelism).
uint64_t growth_of_limit(int limit, size_t before, size_t value, CUdevice device) {
  constexpr uint64_t kLevel = 150'000'000;
  if (limit == kLimitStack) return growth_of_local_memory(before, value, device);
  uint64_t bytes = value - before;
  if (limit == kLimitDepth && __builtin_mul_overflow(bytes, kLevel, &bytes)) bytes = ~uint64_t{0};
  return linear_size(bytes).units;
}

}  // namespace

CUresult cuCtxSetLimit(int limit, size_t value) {
  Hook hook;
  Context context;
  const auto set = [&] { return real::cuCtxSetLimit(limit, value); };
  if (!hook.active() || !takes_memory(limit) || !current_context(hook.process(), context) ||
      context.device_index == Process::kNotCapped) {
    return set();
  }
  constexpr char kApi[] = "cuCtxSetLimit";
  Process& process = hook.process();
  // What it takes is computed from the old limit, so no other thread may change that meanwhile.
  const Locked<SleepLock> alone(process.limits);
  size_t before = 0;
  if (on_own_account(process, [&] { return real::cuCtxGetLimit(&before, limit); }) != kSuccess)
    return set();
  if (value == before) return set();
  const int device_index = context.device_index;
  if (value < before) {
    const CUresult result = set();
    if (result == kSuccess && device_index >= 0) settle_overhead(process, device_index);
    return result;
  }
  const uint64_t charged =
      device_index >= 0 ? charged_limit(process, device_index, context.id, limit) : 0;
  if (value <= charged) return set();
  const uint64_t units =
      growth_of_limit(limit, std::max<uint64_t>(before, charged), value, context.device);
  return take_overhead(
      process, device_index, kApi,
      [&] {
        return OverheadReservation::for_limit(
            process, device_index, kApi, units,
            {.context = context.id, .limit = limit, .value = value});
      },
      set, [&] { real::cuCtxSetLimit(limit, before); });
}

}  // namespace fracgpu::cuda
