// Stream-ordered allocation: a pool is charged by what it has reserved, before and after each call
// that may make it grow. The driver reuses memory that the call's own stream has freed, or that
// another stream has freed before an event that the own stream waits for (pool_blocks.h). So no
// room is reserved for such memory. Threads wait for streams only before an allocation is refused.
#include <optional>

#include "hooks/cuda/kernel.h"
#include "hooks/cuda/pool_frees.h"
#include "hooks/cuda/pools.h"
#include "shim/charge/linear.h"
#include "shim/charge/overhead.h"
#include "shim/charge/pools.h"
#include "shim/charge/refusal.h"
#include "shim/charge/reservation.h"
#include "shim/charge/vmm_calls.h"

namespace fracgpu::cuda {
namespace {

// A request to the driver for an allocation from a pool.
struct PoolRequest {
  const char* api;
  CUmemoryPool pool;
  int device_index;  // of the pool, or Process::kNotCapped / kFault
  CUdeviceptr* out;
  size_t bytes;
  Stream stream;
};

// Whether the driver is sure to reuse memory that the stream has freed. The same holds for memory
// that another stream has freed before an event that this stream waits for, unless the program has
// forbidden that.
[[gnu::cold]] bool begin_reuse(Process& process, const PoolRequest& request, PoolUse& use) {
  const uint64_t stream = number_of(process, request.stream);
  if (use.begin_reuse(stream, request.bytes)) return true;
  if (!use.begin_reuse_after_event(stream, request.bytes)) return false;
  const OwnCalls own_calls(process);
  int follows = 0;
  if (real::cuMemPoolGetAttribute(request.pool, kPoolFollowsEvents, &follows) == kSuccess &&
      follows != 0) {
    return true;
  }
  use.end();
  use.begin(0);
  return false;
}

void learn_growth(Process& process, PoolBlocks::Growth seen) {
  using Growth = Process::PoolGrowth;
  if (seen == PoolBlocks::Growth::none) return;
  if (seen == PoolBlocks::Growth::apart) {
    process.pool_growth.store(Growth::apart, std::memory_order_relaxed);
  } else if (process.pool_growth.load(std::memory_order_relaxed) == Growth::unknown) {
    process.pool_growth.store(Growth::extends, std::memory_order_relaxed);
  }
}

// True if the pool needs to grow only by what its last tail lacks, and if there is room for that.
// From then on only this call uses the pool, so nothing may be trimmed to make room.
[[gnu::cold]] bool begin_extension(Process& process, const PoolRequest& request, PoolUse& use,
                                   std::optional<Reservation>& reservation) {
  uint64_t more = 0;
  if (!use.begin_extension(request.bytes, more)) return false;
  const uint64_t growth = pool_growth_units(more);
  Refusal refusal;
  if (!process.ledger.reserve(request.device_index, growth, refusal)) return false;
  reservation.emplace(process, request.device_index, growth, AskingCall{request.api, request.bytes},
                      growth);
  use.pledge(growth);
  return true;
}

// True if `allocate()` may be called with what the cap has left, although the most that the pool
// may grow by does not fit: the driver may need less, or nothing. From then on only this call uses
// the pool.
[[gnu::cold]] bool begin_trial(Process& process, const PoolRequest& request, PoolUse& use,
                               std::optional<Reservation>& reservation) {
  if (!kernel_calls_are_watched(request.device_index) || !use.begin_alone()) return false;
  reservation.emplace(process, request.device_index, 0, AskingCall{request.api, request.bytes});
  return true;
}

// What the driver takes for the pool beyond the reservation is reserved before the driver gets it.
template <typename Allocate>
CUresult try_to_allocate(Process& process, const PoolRequest& request,
                         std::optional<Reservation>& reservation, Allocate allocate) {
  KernelCall call(process, request.device_index, KernelCall::Charge::as_asked);
  const CUresult result = allocate();
  const uint64_t growth = call.take_excess();
  reservation.emplace(process, request.device_index, growth, AskingCall{request.api, request.bytes},
                      growth);
  return result;
}

// Calls `allocate()` under a reservation of what the pool may grow by, unless the pool is sure not
// to grow. If the driver takes more than foreseen, the excess is charged at once. If the excess
// does not fit under the cap, `free(pointer)` undoes the allocation.
template <typename Allocate, typename Free>
CUresult allocate_from(Process& process, const PoolRequest& request, Allocate allocate, Free free) {
  const int device_index = request.device_index;
  if (device_index == Process::kNotCapped) return allocate();
  if (device_index == Process::kFault) {
    report_fault(process, request.api);
    return kOutOfMemory;
  }
  const uint64_t pool = key_of(request.pool);
  const AskingCall call{request.api, request.bytes};
  const uint64_t growth = pool_growth_units(request.bytes);
  std::optional<Reservation> reservation;
  reservation.emplace(process, device_index, growth, call, Reservation::Unasked{});
  PoolUse use(process, pool, *reservation ? growth : 0);
  const CUdeviceptr before = *request.out;
  CUresult result = kSuccess;
  bool has_answer = *reservation && !use.is_refused();
  if (has_answer) [[likely]] {
    result = allocate();
    if (result == kSuccess && use.end_in_hole(*request.out, request.bytes, *reservation))
      return result;
  }
  // The pool has all or a part of what is needed, so it grows only by the rest.
  bool reuse = !*reservation && !process.pool_blocks.empty() && begin_reuse(process, request, use);
  bool extends = false, tries = false, has_asked = false, has_waited = false;
  Refusal refusal;
  for (bool is_first = true;; is_first = false) {
    if (!*reservation && !reuse) {
      use.end();
      bool has_room = !has_asked && reservation->ask(refusal);
      tries = !has_room && !has_asked && begin_trial(process, request, use, reservation);
      has_asked = true;
      // A short wait for freed memory is better for the program than an out-of-memory error.
      if (!has_room && !tries && !has_waited) {
        has_waited = true;
        const bool has_freed =
            refusal.fault.empty() && wait_for_frees(process, pool, request.stream);
        has_room = has_freed && reservation->ask(refusal = Refusal{});
        tries = has_freed && !has_room && begin_trial(process, request, use, reservation);
      }
      if (!tries) use.begin(has_room ? growth : 0);
      extends =
          !has_room && !tries && is_first && begin_extension(process, request, use, reservation);
      if (!has_room && !extends && !tries) {
        reservation->refuse(refusal);
        return kOutOfMemory;
      }
    }
    if (use.is_refused()) {
      refusal.fault.assign("another thread allocates from the pool, and is not done after 10 s");
      reservation->refuse(refusal);
      return kOutOfMemory;
    }
    const bool is_sure = reuse || extends || tries;
    if (!has_answer)
      result = tries ? try_to_allocate(process, request, reservation, allocate) : allocate();
    has_answer = false;
    if (result == kOutOfMemory && !is_sure) reservation->refused_by_driver();
    const PoolUse::Outcome outcome = use.settle(reuse ? nullptr : &*reservation);
    if (result == kSuccess && (outcome.grown > 0 || !use.has_entered())) {
      learn_growth(process, process.pool_blocks.allocated(pool, *request.out, request.bytes,
                                                          outcome.grown, outcome.reserved));
    }
    if (result == kSuccess && (outcome.foreseen || process.ledger.within_cap(device_index)))
      return result;
    if (result != kSuccess && !(is_sure && result == kOutOfMemory)) return result;
    // The pool took more than foreseen, or lacks memory that it was sure to have.
    process.pool_blocks.forget_holes(pool);
    if (extends) learn_growth(process, PoolBlocks::Growth::apart);
    if (result == kSuccess) {
      if (!is_sure) {
        refusal = Refusal{};
        process.ledger.explain(device_index, layout::units_for(outcome.grown), refusal);
      }
      process.pool_blocks.forget(*request.out);
      on_own_account(process, [&] { free(*request.out); });
      trim_pool(pool);
      settle_pool(process, pool, nullptr);
    }
    *request.out = before;
    if (!is_sure) {
      reservation->refuse(refusal);
      return kOutOfMemory;
    }
    reuse = extends = tries = false;
    reservation.emplace(process, device_index, growth, call, Reservation::Unasked{});
    use.begin(*reservation ? growth : 0);
  }
}

template <typename Real, typename Free>
CUresult allocate_async(CUdeviceptr* out, size_t bytes, const Stream& stream, const Real& real,
                        const Free& free) {
  Hook hook;
  const auto allocate = [&] { return real(out, bytes, stream.handle); };
  Context context;
  if (!hook.active() || out == nullptr || bytes == 0 || is_capturing(hook.process(), stream) ||
      !context_of(hook.process(), stream, context)) {
    return allocate();
  }
  if (context.device_index == Process::kFault) {
    report_fault(hook.process(), "cuMemAllocAsync");
    return kOutOfMemory;
  }
  PoolRequest request{"cuMemAllocAsync", nullptr, Process::kNotCapped, out, bytes, stream};
  if (const CUresult result =
          current_pool(hook.process(), context.device, request.pool, request.device_index);
      result != kSuccess) {
    return result;
  }
  return allocate_from(hook.process(), request, allocate,
                       [&](CUdeviceptr pointer) { free(pointer, stream.handle); });
}

template <typename Real, typename Free>
CUresult allocate_from_pool(CUdeviceptr* out, size_t bytes, CUmemoryPool pool, const Stream& stream,
                            const Real& real, const Free& free) {
  Hook hook;
  const auto allocate = [&] { return real(out, bytes, pool, stream.handle); };
  if (!hook.active() || out == nullptr || bytes == 0 || is_capturing(hook.process(), stream)) {
    return allocate();
  }
  const int device_index = index_of_pool(hook.process(), pool);
  return allocate_from(hook.process(),
                       {"cuMemAllocFromPoolAsync", pool, device_index, out, bytes, stream},
                       allocate, [&](CUdeviceptr pointer) { free(pointer, stream.handle); });
}

// Memory of cuMemAlloc may also be freed in stream order. The driver then gives it back some time
// later, and only driver-reported usage shows when. An import counts as gone at once: its exporter
// must not free it before the stream gets there.
template <typename Real>
CUresult free_async(CUdeviceptr pointer, const Stream& stream, const Real& real) {
  Hook hook;
  if (!hook.active()) return real(pointer, stream.handle);
  Process& process = hook.process();
  const auto call = [&] { return real(pointer, stream.handle); };
  const uint64_t number = process.pool_blocks.begin_free(pointer);
  if (number == 0) {
    return free_address(process, pointer, call, [](Release& release) { release.defer(); });
  }
  const CUresult result = call();
  if (result == kSuccess) {
    process.pool_blocks.end_free(pointer, number, number_of(process, stream),
                                 process.contexts.epoch());
  } else {
    process.pool_blocks.cancel_free(pointer, number);
  }
  return result;
}

}  // namespace

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream stream) {
  return allocate_async(dptr, bytesize, {stream, false}, real::cuMemAllocAsync,
                        real::cuMemFreeAsync);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUstream stream) {
  return allocate_async(dptr, bytesize, {stream, true}, real::cuMemAllocAsync_ptsz,
                        real::cuMemFreeAsync_ptsz);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream stream) {
  return allocate_from_pool(dptr, bytesize, pool, {stream, false}, real::cuMemAllocFromPoolAsync,
                            real::cuMemFreeAsync);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream stream) {
  return allocate_from_pool(dptr, bytesize, pool, {stream, true},
                            real::cuMemAllocFromPoolAsync_ptsz, real::cuMemFreeAsync_ptsz);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream stream) {
  return free_async(dptr, {stream, false}, real::cuMemFreeAsync);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream stream) {
  return free_async(dptr, {stream, true}, real::cuMemFreeAsync_ptsz);
}

}  // namespace fracgpu::cuda
