// Stream-ordered allocation: a pool is charged by what it has reserved, before and after each call
// that may make it grow. No room is asked for memory that the call's own stream has freed, or that
// another one has which it comes after by an event: the driver takes it again (pool_blocks.h). When
// a free takes effect, and when the driver gives memory of a pool back, is found out when the pool
// is read next; streams are waited for only before an allocation is refused.
//
// Managed memory of a pool moves by itself to whatever device uses it, as all managed memory does:
// the pool counts in full on the device that it prefers, or else on the one that was current when
// the program first got it.
#include "shim/charge/pools.h"

#include <algorithm>

#include "hooks/cuda/streams.h"
#include "shim/charge/linear.h"
#include "shim/charge/overhead.h"
#include "shim/charge/refusal.h"
#include "shim/charge/reservation.h"
#include "shim/charge/vmm_calls.h"

namespace fracgpu::cuda {
namespace {

CUmemoryPool handle_of(uint64_t key) {
  return reinterpret_cast<CUmemoryPool>(key);
}
uint64_t key_of(CUmemoryPool pool) {
  return reinterpret_cast<uint64_t>(pool);
}

bool reserved_by_pool(uint64_t key, uint64_t& bytes) {
  const OwnCalls own_calls;
  return real::cuMemPoolGetAttribute(handle_of(key), kPoolReserved, &bytes) == kSuccess;
}
void trim_pool(uint64_t key) {
  const OwnCalls own_calls;
  real::cuMemPoolTrimTo(handle_of(key), 0);
}
constexpr PoolDriver kPools = {reserved_by_pool, trim_pool};

// The device index that a pool of such memory is charged to, or Process::kNotCapped / kFault.
int index_of_pool(Process& process, const CUmemLocation& location, int type) {
  Context context;
  if (const int device = device_of(location); device >= 0) return device_index_of(process, device);
  if (type != kManaged) return Process::kNotCapped;
  return current_context(process, context) ? context.device_index : device_index_of(process, 0);
}

// The device index of a pool that is not known yet. Those that the program made or asked for by
// their place were entered then; a device's default pool is made by the driver.
[[gnu::cold]] int index_of_default_pool(Process& process, CUmemoryPool handle) {
  const OwnCalls own_calls(process);
  for (CUdevice device = 0; device < Process::kSlotsOfVendor; ++device) {
    CUmemoryPool of_device = nullptr;
    const CUresult result = real::cuDeviceGetDefaultMemPool(&of_device, device);
    if (is_unusable(result)) break;  // there are no more
    if (result != kSuccess && result != kNotSupported) return Process::kFault;
    if (result != kSuccess || of_device != handle) continue;
    const int device_index = device_index_of(process, device);
    const bool entered =
        device_index < 0 || process.pools.add(key_of(handle), device_index, kPools);
    return entered ? device_index : Process::kFault;
  }
  return Process::kNotCapped;
}

// The device index of a pool, or Process::kNotCapped for pools of host memory and imported ones.
int index_of_pool(Process& process, CUmemoryPool handle) {
  Pool pool;
  const bool known = process.pools.find(key_of(handle), pool);
  return known ? pool.device_index : index_of_default_pool(process, handle);
}

// A device's current pool, as this thread has seen it.
struct CurrentPool {
  const Process* process = nullptr;
  uint64_t streams = 0, contexts = 0;  // epochs
  CUdevice device = -1;
  CUmemoryPool pool = nullptr;
  int device_index = Process::kNotCapped;
};
[[gnu::tls_model("initial-exec")]] thread_local CurrentPool remembered;

// The current pool of the device, with its device index.
CUresult current_pool(Process& process, CUdevice device, CUmemoryPool& pool, int& device_index) {
  CurrentPool& last = remembered;
  // Before the driver is asked: what it says may be old when it is remembered.
  const uint64_t streams = process.streams.epoch(), contexts = process.contexts.epoch();
  if (last.device != device || last.streams != streams || last.contexts != contexts ||
      last.process != &process) {
    const OwnCalls own_calls(process);
    CUmemoryPool handle = nullptr;
    const CUresult result = real::cuDeviceGetMemPool(&handle, device);
    if (result != kSuccess) return result;
    // The program may have made a pool of host memory the device's current one.
    last = {&process, streams, contexts, device, handle, index_of_pool(process, handle)};
  }
  pool = last.pool;
  device_index = last.device_index;
  // What could not be found out is found out another time.
  if (device_index == Process::kFault) last.device = -1;
  return kSuccess;
}

// An allocation from a pool that the driver is asked for.
struct PoolRequest {
  const char* api;
  CUmemoryPool pool;
  int device_index;  // of the pool, or Process::kNotCapped / kFault
  CUdeviceptr* out;
  size_t bytes;
  Stream stream;
};

// Streams that are waited for: 2 KiB of stack. With 16, what 32 streams had freed did not serve an
// allocation of as much.
constexpr size_t kMostStreams = 256;

// Whether the driver has done all that was freed from the pool in stream order and is still known.
// Waits for it.
[[gnu::cold]] bool frees_are_done(Process& process, uint64_t pool) {
  uint64_t streams[kMostStreams];
  const size_t count =
      process.pool_blocks.streams(pool, process.contexts.epoch(), streams, kMostStreams);
  for (size_t i = 0; i < count; ++i) {
    if (!wait_for(process, stream_of(streams[i]), false)) return false;
  }
  return count < kMostStreams;
}

// Waits for everything that was freed in stream order and that nothing was said of since: the
// driver, too, does so before it is out of memory. False where there is nothing to wait for.
[[gnu::cold]] bool wait_for_frees(Process& process, const PoolRequest& request) {
  if (process.pool_blocks.empty()) return false;
  uint64_t streams[kMostStreams];
  const size_t count = process.pool_blocks.streams(key_of(request.pool), process.contexts.epoch(),
                                                   streams, kMostStreams);
  const uint64_t own = number_of(process, request.stream);
  for (size_t i = 0; i < count; ++i) {
    // Threads' own default streams have no name here, but the legacy stream waits for them.
    if (streams[i] != own) wait_for(process, stream_of(streams[i]), false);
  }
  return wait_for(process, request.stream, true) || count > 0;
}

// Makes room for a pool's growth. Waits for what the program has freed before it refuses: a program
// that waits a little is better off than one that is out of memory.
[[gnu::cold]] bool make_room(Process& process, const PoolRequest& request,
                             Reservation& reservation) {
  Refusal refusal;
  if (reservation.ask(refusal)) return true;
  if (refusal.fault.empty() && wait_for_frees(process, request)) {
    refusal = Refusal{};
    if (reservation.ask(refusal)) return true;
  }
  reservation.refuse(refusal);
  return false;
}

// Whether the driver is sure to take memory again that the stream has freed, or that another one
// has which it comes after by an event, unless the program has forbidden that.
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
  use.begin();
  return false;
}

// Calls `allocate()` under a reservation of what the pool may grow by, unless it is sure not to
// grow. Where the driver takes more than was foreseen, that is charged at once; where it does not
// fit under the cap, `free(pointer)` undoes it.
template <typename Allocate, typename Free>
CUresult allocate_from(Process& process, const PoolRequest& request, Allocate allocate, Free free) {
  const int device_index = request.device_index;
  if (device_index == Process::kNotCapped) return allocate();
  if (device_index == Process::kFault) {
    report_fault(process, request.api);
    return kOutOfMemory;
  }
  const uint64_t pool = key_of(request.pool);
  const uint64_t growth = std::max<uint64_t>(request.bytes, kPoolChunkBytes);
  PoolUse use(process, pool);
  Reservation reservation(process, device_index, linear_size(growth).units,
                          {request.api, request.bytes}, Reservation::Unasked{});
  const CUdeviceptr before = *request.out;
  bool reuse = !reservation && !process.pool_blocks.empty() && begin_reuse(process, request, use);
  for (;; reuse = false) {
    if (!reservation && !reuse) {
      use.end();
      if (!make_room(process, request, reservation)) return kOutOfMemory;
      use.begin();
    }
    if (use.is_refused()) {
      Refusal refusal;
      refusal.fault.assign("another thread allocates from the pool, and is not done after 10 s");
      reservation.refuse(refusal);
      return kOutOfMemory;
    }
    const CUresult result = allocate();
    if (result == kOutOfMemory && !reuse) reservation.refused_by_driver();
    const PoolUse::Outcome outcome = use.settle(reuse ? nullptr : &reservation);
    if (result == kSuccess)
      process.pool_blocks.allocated(pool, *request.out, request.bytes, outcome.grown);
    settle_deferred(process, device_index);
    if (result == kSuccess && (outcome.foreseen || process.ledger.within_cap(device_index)))
      return result;
    if (result != kSuccess && !(reuse && result == kOutOfMemory)) return result;
    // The pool took more than was foreseen, or does not have what it was sure to have.
    process.pool_blocks.forget_holes(pool);
    if (result == kSuccess) {
      process.pool_blocks.forget(*request.out);
      on_own_account(process, [&] { free(*request.out); });
      trim_pool(pool);
      settle_pool(process, pool, nullptr);
    }
    *request.out = before;
    if (!reuse) return kOutOfMemory;
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

// Memory of cuMemAlloc may be freed in stream order too; the driver then gives it back some time
// later, which only driver-reported usage shows. An import counts as gone at once: its exporter may
// not free it before the stream gets there.
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

// Calls `call()`, which chooses the current pool of some place.
template <typename Call>
CUresult choose_pool(Call call) {
  Hook hook;
  // Twice, so that nobody remembers for long what the driver said meanwhile.
  if (hook.active()) hook.process().streams.forget_pools();
  const CUresult result = call();
  if (hook.active()) hook.process().streams.forget_pools();
  return result;
}

// Calls `call()`, which hands out a pool of the memory that is named, and enters the pool. One that
// could take a device's memory uncounted is not handed out.
template <typename Call>
CUresult hand_out(const char* api, CUmemoryPool* pool, const CUmemLocation* location, int type,
                  Call call) {
  Hook hook;
  if (!hook.active() || pool == nullptr || location == nullptr) return call();
  Process& process = hook.process();
  const int device_index = index_of_pool(process, *location, type);
  if (device_index == Process::kFault) {
    report_fault(process, api);
    return kOutOfMemory;
  }
  const CUresult result = call();
  if (result == kSuccess && device_index >= 0)
    process.pools.add(key_of(*pool), device_index, kPools);
  return result;
}

// Enters memory of another process's pool. What is held with it is all of its chunk.
void enter_imported(Process& process, ImportCall& call, CUdeviceptr pointer) {
  CUdevice device = 0;
  size_t chunk = 0;
  const OwnCalls own_calls(process);
  if (real::cuPointerGetAttribute(&device, kPointerDevice, pointer) != kSuccess) return;
  if (real::cuPointerGetAttribute(&chunk, kPointerMapping, pointer) != kSuccess) {
    real::cuMemGetAddressRange_v2(nullptr, &chunk, pointer);
    chunk = std::max<size_t>(chunk, kPoolChunkBytes);
  }
  call.imported(pointer, device_index_of(process, device), linear_size(chunk).units);
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

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  const CUmemLocation* location = properties != nullptr ? &properties->location : nullptr;
  const int type = properties != nullptr ? properties->allocType : 0;
  return hand_out("cuMemPoolCreate", pool, location, type,
                  [&] { return real::cuMemPoolCreate(pool, properties); });
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location, int type) {
  return hand_out("cuMemGetDefaultMemPool", pool, location, type,
                  [&] { return real::cuMemGetDefaultMemPool(pool, location, type); });
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, int type) {
  return hand_out("cuMemGetMemPool", pool, location, type,
                  [&] { return real::cuMemGetMemPool(pool, location, type); });
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  Hook hook;
  if (!hook.active()) return real::cuMemPoolDestroy(pool);
  uint64_t used = 0;
  bool in_use = true;
  {
    const OwnCalls own_calls(hook.process());
    in_use = real::cuMemPoolGetAttribute(pool, kPoolUsed, &used) != kSuccess || used != 0;
  }
  // What is freed but not yet done stays the driver's. Where nobody tells when it is gone, it must
  // be done before.
  Pool living;
  if (!in_use && hook.process().pools.find(key_of(pool), living) && living.device_index >= 0 &&
      !usage_is_told(hook.process(), living.device_index)) {
    in_use = !frees_are_done(hook.process(), key_of(pool));
  }
  // Removed before it is destroyed: other threads read every pool in the table.
  Pool forgotten;
  const bool known = hook.process().pools.remove(key_of(pool), forgotten);
  hook.process().pool_blocks.forget_pool(key_of(pool));
  hook.process().streams.forget_pools();
  const CUresult result = real::cuMemPoolDestroy(pool);
  hook.process().streams.forget_pools();
  if (known && result == kSuccess) charge_destroyed_pool(hook.process(), forgotten, in_use);
  if (known && result != kSuccess) hook.process().pools.put_back(forgotten);
  return result;
}

CUresult cuMemPoolExportToShareableHandle(void* os_handle, CUmemoryPool pool, int handle_type,
                                          unsigned long long flags) {
  Hook hook;
  const CUresult result =
      real::cuMemPoolExportToShareableHandle(os_handle, pool, handle_type, flags);
  if (result == kSuccess && hook.active()) note_exported_pool(hook.process(), key_of(pool));
  return result;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* data, CUdeviceptr pointer) {
  Hook hook;
  const CUresult result = real::cuMemPoolExportPointer(data, pointer);
  if (result == kSuccess && hook.active()) note_handle(hook.process(), data, sizeof *data);
  return result;
}

CUresult cuMemPoolImportPointer(CUdeviceptr* pointer, CUmemoryPool pool,
                                CUmemPoolPtrExportData* data) {
  Hook hook;
  if (!hook.active() || pointer == nullptr) {
    return real::cuMemPoolImportPointer(pointer, pool, data);
  }
  ImportCall call(hook.process(), data, sizeof *data);
  const CUresult result = real::cuMemPoolImportPointer(pointer, pool, data);
  if (result == kSuccess) enter_imported(hook.process(), call, *pointer);
  return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes_to_keep) {
  Hook hook;
  const CUresult result = real::cuMemPoolTrimTo(pool, bytes_to_keep);
  if (hook.active()) settle_pool(hook.process(), key_of(pool), nullptr);
  return result;
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  return choose_pool([&] { return real::cuDeviceSetMemPool(device, pool); });
}

CUresult cuMemSetMemPool(CUmemLocation* location, int type, CUmemoryPool pool) {
  return choose_pool([&] { return real::cuMemSetMemPool(location, type, pool); });
}

}  // namespace fracgpu::cuda
