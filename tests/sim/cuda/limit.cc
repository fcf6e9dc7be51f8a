// The limits of contexts. Four of them are paid with device memory when they are raised above what
// the context's fixed cost includes, and give it back when they are lowered. A level of
// synchronisation takes up to 150 MB, and two are there from the start (CUDA programming guide,
// dynamic parallelism, "Memory Footprint"); the real driver may take it as late as at a launch.
#include "sim/cuda/module.h"

using sim::Context;
using sim::Driver;
using sim::Guard;
using sim::kPage;

namespace {

// The stacks of all threads that can be resident on one multiprocessor (libcuda 535.261.03).
uint64_t stacks(size_t value) {
  constexpr uint64_t kStep = 32 << 10;
  if (value > sim::kMostStack) return UINT64_MAX;
  return ((value + 15) / 16 * 16 * sim::kResidentThreads + kStep - 1) / kStep * kStep;
}

// What a value takes beyond the fixed cost, in whole pages; UINT64_MAX for what no device has.
uint64_t price(const sim::DeviceRow& row, int which, size_t value) {
  if (which > sim::kSyncDepth || value <= sim::kDefaultLimits[which]) return 0;
  uint64_t bytes = value - sim::kDefaultLimits[which];
  uint64_t copies = 1;
  if (which == sim::kStackSize) {
    bytes = stacks(value);
    if (bytes != UINT64_MAX) bytes -= stacks(sim::kDefaultLimits[which]);
    copies = row.multiprocessors;
  }
  if (which == sim::kSyncDepth) copies = 150'000'000;
  if (__builtin_mul_overflow(bytes, copies, &bytes) || bytes > row.total) return UINT64_MAX;
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

namespace sim {

// With the driver's lock held.
CUresult set_limit(Context* context, int which, size_t value) {
  Driver& driver = Driver::get();
  const DeviceRow& row = driver.row(context->ordinal);
  const uint64_t before = price(row, which, context->limit[which]);
  const uint64_t after = price(row, which, value);
  if (after > before) {
    if (!driver.grow(context, after - before)) return CUDA_ERROR_OUT_OF_MEMORY;
  } else {
    driver.shrink(context, before - after);
  }
  context->limit[which] = value;
  return CUDA_SUCCESS;
}

CUresult take_local_memory(Context* context, CUfunction function) {
  const Guard guard(Driver::get().lock());
  const size_t bytes = local_bytes_of(function);
  return bytes > context->limit[kStackSize] ? set_limit(context, kStackSize, bytes) : CUDA_SUCCESS;
}

}  // namespace sim

SIM_API CUresult cuCtxSetLimit(int which, size_t value) {
  SIM_CALL(cuCtxSetLimit);
  SIM_CONTEXT(current);
  // The last one can only be asked for.
  if (which < 0 || which >= sim::kLimits - 1) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  const Guard guard(Driver::get().lock());
  return sim::set_limit(current->owner(), which, value);
}

SIM_API CUresult cuCtxGetLimit(size_t* value, int which) {
  SIM_CALL(cuCtxGetLimit);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_CONTEXT(current);
  if (which < 0 || which >= sim::kLimits) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  const Guard guard(Driver::get().lock());
  *value = current->owner()->limit[which];
  return CUDA_SUCCESS;
}
