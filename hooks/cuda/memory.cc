// Linear device memory: cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged and cuMemFree.
//
// One body allocates and one frees; the variants differ in the width of their arguments. Managed
// memory is charged in full when it is allocated: it can become resident later without a call to
// any function. A cap that holds only until the first touch would be useless.
#include <optional>

#include "hooks/cuda/kernel.h"
#include "hooks/cuda/streams.h"
#include "shim/charge/linear.h"
#include "shim/charge/overhead.h"
#include "shim/charge/refusal.h"
#include "shim/charge/reservation.h"
#include "shim/charge/vmm_calls.h"

namespace fracgpu::cuda {
namespace {

// Small managed allocations share pages like other small allocations, as their addresses show
// (kokkos issue 2641: a hundred million of them fit).
LinearSize managed_size(uint64_t bytes) {
  LinearSize size = linear_size(bytes);
  size.managed = true;
  return size;
}

// Calls `allocate()` (the driver) for a small allocation for which the cap has no room, so that
// only a hole can serve it. `record(hole, given)` records it, or undoes the call and returns false.
// Returns nothing if there was no hole. If the driver's requests to its kernel driver are watched,
// it looks for a hole itself, and is refused a new chunk.
template <typename Allocate, typename Record>
[[gnu::cold]] std::optional<CUresult> allocate_in_hole(Process& process, const Context& context,
                                                       const LinearSize& size,
                                                       Reservation& reservation, Allocate allocate,
                                                       Record record) {
  const int device_index = context.device_index;
  uint64_t excess = 0;
  std::optional<CUresult> answer;
  {
    HoleScope hole(process, context, size, !size.managed && kernel_calls_are_watched(device_index));
    if (!hole) return answer;
    KernelCall call(process, device_index, KernelCall::Charge::as_asked);
    const CUresult result = allocate();
    excess = call.take_excess();
    if (result != kSuccess) {
      if (call.refused() == 0) answer = result;
      if (answer == kOutOfMemory) reservation.refused_by_driver();
    } else if (record(hole, excess)) {
      answer = result;
      if (hole.is_new_chunk() && excess >= size.units) excess -= size.units;
    }
  }
  // The driver may have taken more than the chunk, for itself. A reading shows whether it has it.
  if (excess > 0) defer_to_reported_usage(process, device_index, excess);
  return answer;
}

// Calls `allocate()` (the driver) for `call` under a reservation of `bytes`. After success, calls
// `actual_bytes()`, because some functions round the size up. Inlined, because each function that
// allocates has its own instance.
template <typename Pointer, typename Allocate, typename ActualBytes>
[[gnu::always_inline]] inline CUresult allocate_linear(
    const AskingCall& call, Pointer* out, uint64_t bytes, Allocate allocate,
    ActualBytes actual_bytes, LinearSize (*size_of)(uint64_t) = linear_size) {
  Hook hook;
  Context context;
  // The driver itself refuses these calls, with its own error.
  if (!hook.active() || out == nullptr || bytes == 0) return allocate();
  Process& process = hook.process();
  if (!current_context(process, context)) return allocate();
  if (context.device_index == Process::kNotCapped) return allocate();
  if (context.device_index == Process::kFault) {
    report_fault(process, call.api);
    return kOutOfMemory;
  }

  LinearSize size = size_of(bytes);
  const Pointer before = *out;
  const auto undo = [&] {
    on_own_account(process, [&] { real::cuMemFree_v2(*out); });
    *out = before;
    return kOutOfMemory;
  };
  Reservation reservation(process, context.device_index, size.units, call, Reservation::Unasked{});
  if (!reservation) {
    Refusal refusal;
    if (size.shares_chunk && !reservation.ask_ledger(refusal)) {
      const auto record = [&](HoleScope& hole, uint64_t given) {
        if (hole.record(*out, size_of(actual_bytes()), given)) return true;
        undo();
        return false;
      };
      if (const auto result =
              allocate_in_hole(process, context, size, reservation, allocate, record))
        return *result;
    }
    refusal = Refusal{};
    if (!reservation && !reservation.ask(refusal)) {
      reservation.refuse(refusal);
      return kOutOfMemory;
    }
  }
  const SmallAllocationScope small(process, size.shares_chunk);
  const CUresult result = allocate();
  if (result == kOutOfMemory) reservation.refused_by_driver();
  if (result != kSuccess) return result;

  const uint64_t taken = actual_bytes();
  const LinearSize actual = size_of(taken);
  if (taken <= bytes || actual.units <= size.units) {
    if (taken > bytes) size = actual;
    return record_linear(process, reservation, context, *out, size) ? result : undo();
  }
  // The driver took more than expected. The rest must fit, or the memory is freed.
  Reservation rest(process, context.device_index, actual.units - size.units, call.api);
  if (!rest || !record_linear(process, reservation, context, *out, actual)) return undo();
  rest.keep(actual.units - size.units);
  return result;
}

template <typename Pointer, typename Size, typename Real>
CUresult allocate_pitched(Pointer* out, Size* pitch, Size width, Size height,
                          unsigned int element_bytes, const Real& real) {
  // Current devices pad rows to 512 bytes. The charge is what the driver really chose.
  constexpr uint64_t kPitchAlignment = 512;
  uint64_t row_bytes = 0, bytes = 0, asked = 0;
  if (__builtin_mul_overflow(uint64_t{width}, uint64_t{height}, &asked)) asked = ~0ull;
  if (__builtin_add_overflow(uint64_t{width}, kPitchAlignment - 1, &row_bytes)) row_bytes = ~0ull;
  row_bytes -= row_bytes % kPitchAlignment;
  if (__builtin_mul_overflow(row_bytes, uint64_t{height}, &bytes)) bytes = ~0ull;
  if (pitch == nullptr) bytes = 0;
  return allocate_linear(
      {"cuMemAllocPitch", asked}, out, bytes,
      [&] { return real(out, pitch, width, height, element_bytes); },
      [&] { return uint64_t{*pitch} * height; });
}

template <typename Pointer, typename Size, typename Real>
CUresult allocate_plain(Pointer* out, Size bytes, const Real& real) {
  return allocate_linear(
      {"cuMemAlloc", bytes}, out, bytes, [&] { return real(out, bytes); },
      [&] { return uint64_t{bytes}; });
}

template <typename Pointer, typename Real>
CUresult release_linear(Pointer pointer, const Real& real) {
  Hook hook;
  if (!hook.active()) return real(pointer);
  // A pointer that is not tracked, for example from before the cap, goes to the driver, which
  // checks it.
  return free_address(
      hook.process(), pointer, [&] { return real(pointer); },
      [](Release& release) { release.done(); });
}

}  // namespace

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  return allocate_plain(dptr, bytesize, real::cuMemAlloc_v2);
}

CUresult cuMemAlloc(CUdeviceptr_v1* dptr, unsigned int bytesize) {
  return allocate_plain(dptr, bytesize, real::cuMemAlloc);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pitch, size_t width, size_t height,
                            unsigned int element_bytes) {
  return allocate_pitched(dptr, pitch, width, height, element_bytes, real::cuMemAllocPitch_v2);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1* dptr, unsigned int* pitch, unsigned int width,
                         unsigned int height, unsigned int element_bytes) {
  return allocate_pitched(dptr, pitch, width, height, element_bytes, real::cuMemAllocPitch);
}

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  return allocate_linear(
      {"cuMemAllocManaged", bytesize}, dptr, bytesize,
      [&] { return real::cuMemAllocManaged(dptr, bytesize, flags); }, [&] { return bytesize; },
      managed_size);
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  return release_linear(dptr, real::cuMemFree_v2);
}

CUresult cuMemFree(CUdeviceptr_v1 dptr) {
  return release_linear(dptr, real::cuMemFree);
}

}  // namespace fracgpu::cuda
