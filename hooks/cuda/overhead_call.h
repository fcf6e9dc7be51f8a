// Calls that make the driver take memory without naming its size.
#pragma once

#include <type_traits>

#include "hooks/cuda/kernel.h"
#include "hooks/cuda/streams.h"
#include "shim/charge/linear.h"
#include "shim/charge/overhead.h"
#include "shim/charge/refusal.h"
#include "shim/charge/reservation.h"

namespace fracgpu::cuda {

inline constexpr auto kNoHandle = [] { return static_cast<const void*>(nullptr); };

// Calls `take()` under the reservation. If the driver takes more, the reservation grows by the
// excess.
template <typename Take>
CUresult take_under(OverheadReservation& reservation, Process& process, int device_index,
                    const char* api, Take take) {
  KernelCall call(process, device_index, KernelCall::Charge::as_overhead, reservation.units());
  const CUresult result = take();
  const uint64_t excess = call.take_excess();
  reservation.extend(excess);
  if (result == kSuccess) return result;
  if (call.has_changed()) reservation.failed_half_way(excess);
  if (call.refused() > 0) {
    report_refusal(process, device_index, api, call.refusal());
  } else if (result == kOutOfMemory) {
    reservation.refused_by_driver();
  }
  return result;
}

// Calls `take()` if RM's memory is watched. The driver then takes exactly what it needs.
template <typename Take>
CUresult take_as_needed(Process& process, int device_index, const AskingCall& asking, Take take) {
  uint64_t missing = 0;
  {
    KernelCall call(process, device_index, KernelCall::Charge::at_once);
    const CUresult result = take();
    missing = call.refused();
    if (result == kOutOfMemory && missing == 0)
      report_driver_refusal(process, device_index, asking, 0);
    if (result == kSuccess || missing == 0) return result;
  }
  Reservation room(process, device_index, missing, asking);
  if (!room) return kOutOfMemory;
  KernelCall call(process, device_index, KernelCall::Charge::at_once, room.take());
  const CUresult result = take();
  if (result != kSuccess && call.refused() > 0)
    report_refusal(process, device_index, asking, call.refusal());
  return result;
}

// Stands for calls that cannot be undone.
struct CannotUndo {};

// Calls `take()` (the driver) under the reservation that `reserve()` returns. `undo()` undoes the
// call. `handle()` returns the new object's handle, which identifies it later.
template <typename Reserve, typename Take, typename Undo, typename Handle = decltype(kNoHandle)>
CUresult take_overhead(Process& process, int device_index, const char* api, Reserve reserve,
                       Take take, Undo undo, Handle handle = kNoHandle) {
  if (device_index == Process::kNotCapped) return take();
  if (device_index == Process::kFault) {
    report_fault(process, api);
    return kOutOfMemory;
  }
  OverheadReservation reservation = reserve();
  if (!reservation) return kOutOfMemory;
  const CUresult result = take_under(reservation, process, device_index, api, take);
  if (result != kSuccess) return result;
  if constexpr (std::is_same_v<Undo, CannotUndo>) {
    reservation.made_for_good();
    return result;
  } else {
    if (reservation.made(handle())) return result;
    on_own_account(process, undo);
    settle_overhead(process, device_index);
    return kOutOfMemory;
  }
}

// Units reserved for the first module of a process, beyond the size that its image reveals. For
// later modules, the largest size seen so far is reserved. If there is no more room, a larger first
// module exceeds the cap for a moment. There are no published figures for modules:
// tests/hardware.sh measures one, as context.module_bytes.
inline constexpr uint64_t kEstimatedModule = (32u << 20) / layout::kUnit;

// The same for a call that loads code. `units` is the size that the image reveals, or 0.
template <typename Load, typename Unload>
CUresult take_code(Process& process, int device_index, const char* api, uint64_t units, Load load,
                   Unload unload) {
  if (kernel_calls_are_watched(device_index))
    return take_as_needed(process, device_index, api, load);
  return take_overhead(
      process, device_index, api,
      [&] {
        return OverheadReservation::for_module(process, device_index, api, kEstimatedModule,
                                               {.units = units});
      },
      load, unload);
}

// The same for a call that takes at most `pages` of the driver's pages in the context, if RM's
// memory is not watched. With 0 pages, nothing is reserved. `destroy()` undoes the call, and `*out`
// then gets its old value back. The pages stay charged until the context ends, because the driver
// keeps them that long.
template <typename Handle, typename Take, typename Destroy>
CUresult take_pages(Process& process, const Context& context, const char* api, uint64_t pages,
                    Handle* out, Take take, const Destroy& destroy) {
  if (kernel_calls_are_watched(context.device_index))
    return take_as_needed(process, context.device_index, api, take);
  if (pages == 0) return take();
  const Handle before = *out;
  return take_overhead(
      process, context.device_index, api,
      [&] {
        return OverheadReservation(process, context.device_index,
                                   linear_size(pages * kPageBytes).units, {api},
                                   OverheadReservation::Kind::code, {.context = context.id});
      },
      take,
      [&] {
        destroy(*out);
        *out = before;
      });
}

}  // namespace fracgpu::cuda
