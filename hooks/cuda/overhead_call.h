// A call that makes the driver take memory whose size it does not name.
#pragma once

#include <type_traits>

#include "hooks/cuda/streams.h"
#include "shim/charge/linear.h"
#include "shim/charge/overhead.h"
#include "shim/charge/refusal.h"

namespace fracgpu::cuda {

inline constexpr auto kNoHandle = [] { return static_cast<const void*>(nullptr); };

// Stands for what nothing undoes.
struct CannotUndo {};

// Calls `take()` (the driver) under what `reserve()` returns; `undo()` undoes it, and `handle()` is
// what was made, by which it is known later.
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
  const CUresult result = take();
  if (result == kOutOfMemory) reservation.refused_by_driver();
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

// Reserved for the first module of a process, beyond what its image tells; for later ones, the most
// that one took. A first one that takes more is over the cap for a moment, where there is no more
// room. What modules take nobody has published: tests/hardware.sh measures one, as
// context.module_bytes.
inline constexpr uint64_t kEstimatedModule = (32u << 20) / layout::kUnit;

// The same for a call that loads code, of which an image tells `units`, or 0.
template <typename Load, typename Unload>
CUresult take_code(Process& process, int device_index, const char* api, uint64_t units, Load load,
                   Unload unload) {
  return take_overhead(
      process, device_index, api,
      [&] {
        return OverheadReservation::for_module(process, device_index, api, kEstimatedModule,
                                               {.units = units});
      },
      load, unload);
}

// The same for a call that takes at most `pages` of the driver's pages in the context, without a
// reservation if it takes none. `destroy()` undoes it, and `*out` is what it was before. What the
// driver took stays charged until the context ends, since it keeps that.
template <typename Handle, typename Take, typename Destroy>
CUresult take_pages(Process& process, const Context& context, const char* api, uint64_t pages,
                    Handle* out, Take take, const Destroy& destroy) {
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
