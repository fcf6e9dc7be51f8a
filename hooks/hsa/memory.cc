// Memory of pools and regions. HIP's hipMalloc, pools and arrays all lead to these calls.
//
// ROCr suballocates ordinary requests of up to 2 MiB from blocks of 2 MiB and rounds larger ones up
// to whole blocks. It passes requests with special properties to the kernel in pages of 4 KiB
// (public source of its memory regions). A block stays as long as a part of it is allocated, and
// for a while longer; see shim/tracking/block_cache.h.
#include <string.h>

#include <atomic>

#include "hooks/hsa/hook.h"
#include "hooks/hsa/kernel.h"
#include "shim/base/environment.h"
#include "shim/charge/linear.h"
#include "shim/charge/reservation.h"
#include "shim/charge/upper_call.h"
#include "shim/process/hook_scope.h"

namespace fracgpu::hsa {
namespace {

// Whether ROCr suballocates from blocks. An environment variable turns that off, for debugging.
enum class Suballocation { unknown, no, yes };
std::atomic<Suballocation> suballocation{Suballocation::unknown};

[[gnu::cold]] Suballocation read_suballocation() {
  const char* value = vendor_environment("HSA_DISABLE_FRAGMENT_ALLOCATOR");
  const Suballocation answer =
      value != nullptr && strcmp(value, "1") == 0 ? Suballocation::no : Suballocation::yes;
  suballocation.store(answer, std::memory_order_relaxed);
  return answer;
}

bool suballocates() {
  const Suballocation known = suballocation.load(std::memory_order_relaxed);
  return (known != Suballocation::unknown ? known : read_suballocation()) == Suballocation::yes;
}

// An application's request for `bytes` of the pool or region with this handle.
struct Call {
  const char* api;
  Handle kind;
  uint64_t handle;
  uint64_t bytes;
  uint32_t flags;
  void** out;
};

// The same, if the pool or region is on a capped device.
struct Request {
  Process& process;
  const char* api;
  const Context& context;
  int pool;
  uint64_t bytes;
  void** out;
};

// Calls `allocate()` under the reservation and then `record(address)`. `record` returns false if
// the host has no memory left to remember the allocation, which is then freed.
template <typename Allocate, typename Free, typename Record>
hsa_status_t allocate_under(Reservation& reservation, void** out, Allocate allocate, Free free,
                            Record record) {
  if (!reservation) return kOutOfResources;
  void* const before = *out;
  const hsa_status_t result = allocate();
  if (result == kOutOfResources) reservation.refused_by_driver();
  if (result != kSuccess || record(reinterpret_cast<uint64_t>(*out))) return result;
  free(*out);
  *out = before;
  return kOutOfResources;
}

// Calls `allocate()`, which takes its own memory of `units`.
template <typename Allocate, typename Free>
hsa_status_t allocate_whole(const Request& request, uint64_t units, Allocate allocate, Free free) {
  const int device_index = request.context.device_index;
  Reservation reservation(request.process, device_index, units, {request.api, request.bytes},
                          UpperCall::take(device_index, units));
  return allocate_under(reservation, request.out, allocate, free, [&](uint64_t address) {
    return record_linear(request.process, reservation, request.context, address, {units, false});
  });
}

// Calls `allocate()` without letting the runtime take a block, because there is no room for one: a
// block in use may have a hole. `begun` has ended if this returns true.
template <typename Allocate, typename Free>
[[gnu::cold]] bool allocate_in_hole(const Request& request, BlockCache& blocks,
                                    BlockCache::Ticket& begun, Allocate allocate, Free free) {
  if (!NoMoreMemory::is_possible() || !blocks.enter_alone(begun)) return false;
  Process& process = request.process;
  void* const before = *request.out;
  bool done = false;
  {
    const NoMoreMemory full;
    const bool made = allocate() == kSuccess;
    done = made && record_in_hole(process, request.context, request.pool,
                                  reinterpret_cast<uint64_t>(*request.out), begun);
    if (made && !done) {
      free(*request.out);
      *request.out = before;
    }
    // Only the driver's count shows how much memory was freed.
    if (NoMoreMemory::has_freed()) {
      process.overhead[request.context.device_index].read_again_ms.store(0,
                                                                         std::memory_order_relaxed);
    }
  }
  blocks.leave_alone();
  return done;
}

// Calls `allocate()`, which suballocates from a block, and makes a new block if none has room.
template <typename Allocate, typename Free>
hsa_status_t suballocate(const Request& request, Allocate allocate, Free free) {
  constexpr uint64_t kUnits = BlockCache::kBlockUnits;
  const int device_index = request.context.device_index;
  BlockCache& blocks = request.process.blocks[device_index][request.pool];
  const bool whole = fills_block(request.bytes);
  BlockCache::Ticket begun = blocks.begin(whole);
  const AskingCall asking{request.api, request.bytes};
  const auto take = [&](Reservation& reservation) {
    const BlockScope scope(device_index, request.pool);
    const hsa_status_t result =
        allocate_under(reservation, request.out, allocate, free, [&](uint64_t address) {
          return record_suballocation(request.process, reservation, request.context, request.pool,
                                      address, begun);
        });
    if (result != kSuccess) {
      if (begun.from_empty) reservation.take();
      blocks.cancel(begun);
    }
    return result;
  };
  const uint64_t charged = begun.from_empty ? kUnits : UpperCall::take(device_index, kUnits);
  if (charged > 0) {
    Reservation reservation(request.process, device_index, kUnits, asking, charged);
    return take(reservation);
  }
  Reservation reservation(request.process, device_index, kUnits, asking, Reservation::Unasked{});
  Refusal refusal;
  if (reservation || reservation.ask_ledger(refusal)) [[likely]]
    return take(reservation);
  if (refusal.fault.empty()) {
    if (!whole && allocate_in_hole(request, blocks, begun, allocate, free)) return kSuccess;
    if (reservation.ask(refusal)) return take(reservation);
  }
  blocks.cancel(begun);
  reservation.refuse(refusal);
  return kOutOfResources;
}

// Calls `allocate()`, which requests that memory from the runtime. `free(address)` undoes it.
template <typename Allocate, typename Free>
hsa_status_t allocate_in(const Call& call, Allocate allocate, Free free) {
  Hook hook;
  // The runtime itself refuses these calls, with its own error.
  const uint64_t bytes = call.bytes;
  if (!hook.active() || call.out == nullptr || bytes == 0) return allocate();
  Process& process = hook.process();
  Context context;
  int pool = 0;
  switch (place_of(process, call.api, call.kind, call.handle, context, &pool)) {
    case Place::elsewhere:
      return allocate();
    case Place::refused:
      return kOutOfResources;
    case Place::capped:
      break;
  }
  const Request request{process, UpperCall::name_or(call.api), context, pool, bytes, call.out};
  if (call.flags != 0 || !suballocates()) {
    return allocate_whole(request, page_units(bytes), allocate, free);
  }
  if (bytes <= kBlock) return suballocate(request, allocate, free);
  const uint64_t blocks = bytes / kBlock + (bytes % kBlock != 0);
  return allocate_whole(request, blocks * BlockCache::kBlockUnits, allocate, free);
}

template <typename Real>
hsa_status_t release(void* pointer, const Real& real) {
  Hook hook;
  if (!hook.active()) return real(pointer);
  const auto address = reinterpret_cast<uint64_t>(pointer);
  Release release(hook.process(), address, address % kBlock != 0);
  const hsa_status_t result = [&] {
    const HookScope::Callback callback;  // hsa_amd_register_deallocation_callback
    return real(pointer);
  }();
  if (result == kSuccess) release.done_in_block();
  return result;
}

}  // namespace

hsa_status_t hsa_amd_memory_pool_allocate(hsa_amd_memory_pool_t pool, size_t size, uint32_t flags,
                                          void** pointer) {
  return allocate_in(
      {"hsa_amd_memory_pool_allocate", Handle::pool, pool.handle, size, flags, pointer},
      [=] { return real::hsa_amd_memory_pool_allocate(pool, size, flags, pointer); },
      real::hsa_amd_memory_pool_free);
}

hsa_status_t hsa_amd_memory_pool_free(void* pointer) {
  return release(pointer, real::hsa_amd_memory_pool_free);
}

hsa_status_t hsa_memory_allocate(hsa_region_t region, size_t size, void** pointer) {
  return allocate_in(
      {"hsa_memory_allocate", Handle::region, region.handle, size, 0, pointer},
      [=] { return real::hsa_memory_allocate(region, size, pointer); }, real::hsa_memory_free);
}

hsa_status_t hsa_memory_free(void* pointer) {
  return release(pointer, real::hsa_memory_free);
}

}  // namespace fracgpu::hsa
