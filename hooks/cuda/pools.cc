// Stream-ordered allocation: a pool is charged by what it has reserved, before and after each call
// that may make it grow. No stream is synchronised: when a free takes effect, and when the driver
// gives memory of a pool back, is found out when the pool is read next.
//
// Managed memory of a pool moves by itself to whatever device uses it, as all managed memory does:
// the pool counts in full on the device that it prefers, or else on the one that was current when
// the program first got it.
#include "shim/charge/pools.h"

#include <algorithm>

#include "hooks/cuda/hook.h"
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
  return real::cuMemPoolGetAttribute(handle_of(key), kPoolReserved, &bytes) == kSuccess;
}
void trim_pool(uint64_t key) {
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

// `per_thread`: the null stream is the thread's own.
bool is_capturing(CUstream stream, bool per_thread) {
  const auto kLegacy = reinterpret_cast<CUstream>(1);     // CU_STREAM_LEGACY
  const auto kPerThread = reinterpret_cast<CUstream>(2);  // CU_STREAM_PER_THREAD
  if (stream == nullptr) stream = per_thread ? kPerThread : kLegacy;
  if (stream == kLegacy) return false;  // documented: it cannot be captured
  int status = kNotCapturing;
  return real::cuStreamIsCapturing(stream, &status) == kSuccess && status != kNotCapturing;
}

// The context whose device a stream works on.
bool context_of(Process& process, CUstream stream, Context& context) {
  // The default streams are those of whatever context is current.
  if (reinterpret_cast<uint64_t>(stream) > 2) {
    CUcontext handle = nullptr;
    if (real::cuStreamGetCtx(stream, &handle) == kSuccess &&
        known_context(process, handle, context)) {
      return true;
    }
  }
  return current_context(process, context);
}

// An allocation from a pool that the driver is asked for.
struct PoolRequest {
  const char* api;
  CUmemoryPool pool;
  int device_index;  // of the pool, or Process::kNotCapped / kFault
  CUdeviceptr* out;
  size_t bytes;
};

// Calls `allocate()` under a reservation of what the pool may grow by. Where the driver takes more,
// that is charged at once; where it does not fit under the cap, `free(pointer)` undoes it.
template <typename Allocate, typename Free>
CUresult allocate_from(Process& process, const PoolRequest& request, Allocate allocate, Free free) {
  const int device_index = request.device_index;
  if (device_index == Process::kNotCapped) return allocate();
  if (device_index == Process::kFault) {
    report_fault(process, request.api);
    return kOutOfMemory;
  }
  const uint64_t growth = std::max<uint64_t>(request.bytes, kPoolChunkBytes);
  Reservation reservation(process, device_index, linear_size(growth).units, request.api);
  if (!reservation) return kOutOfMemory;
  const CUdeviceptr before = *request.out;
  const CUresult result = allocate();
  if (result == kOutOfMemory) reservation.refused_by_driver();
  const uint64_t pool = key_of(request.pool);
  const bool as_foreseen = settle_pool(process, pool, &reservation);
  settle_deferred(process, device_index);
  if (result != kSuccess || as_foreseen || process.ledger.within_cap(device_index)) return result;
  // The pool took more than was foreseen.
  free(*request.out);
  trim_pool(pool);
  settle_pool(process, pool, nullptr);
  *request.out = before;
  return kOutOfMemory;
}

template <typename Real, typename Free>
CUresult allocate_async(CUdeviceptr* out, size_t bytes, CUstream stream, bool per_thread,
                        const Real& real, const Free& free) {
  Hook hook;
  const auto allocate = [&] { return real(out, bytes, stream); };
  Context context;
  if (!hook.active() || out == nullptr || bytes == 0 || is_capturing(stream, per_thread) ||
      !context_of(hook.process(), stream, context)) {
    return allocate();
  }
  if (context.device_index == Process::kFault) {
    report_fault(hook.process(), "cuMemAllocAsync");
    return kOutOfMemory;
  }
  CUmemoryPool pool = nullptr;
  if (const CUresult result = real::cuDeviceGetMemPool(&pool, context.device); result != kSuccess) {
    return result;
  }
  // The program may have made a pool of host memory the device's current one.
  const int device_index = index_of_pool(hook.process(), pool);
  return allocate_from(hook.process(), {"cuMemAllocAsync", pool, device_index, out, bytes},
                       allocate, [&](CUdeviceptr pointer) { free(pointer, stream); });
}

template <typename Real, typename Free>
CUresult allocate_from_pool(CUdeviceptr* out, size_t bytes, CUmemoryPool pool, CUstream stream,
                            bool per_thread, const Real& real, const Free& free) {
  Hook hook;
  const auto allocate = [&] { return real(out, bytes, pool, stream); };
  if (!hook.active() || out == nullptr || bytes == 0 || is_capturing(stream, per_thread)) {
    return allocate();
  }
  const int device_index = index_of_pool(hook.process(), pool);
  return allocate_from(hook.process(), {"cuMemAllocFromPoolAsync", pool, device_index, out, bytes},
                       allocate, [&](CUdeviceptr pointer) { free(pointer, stream); });
}

// Memory of cuMemAlloc may be freed in stream order too; the driver then gives it back some time
// later, which only driver-reported usage shows. An import counts as gone at once: its exporter may
// not free it before the stream gets there.
template <typename Real>
CUresult free_async(CUdeviceptr pointer, CUstream stream, const Real& real) {
  Hook hook;
  if (!hook.active()) return real(pointer, stream);
  return free_address(
      hook.process(), pointer, [&] { return real(pointer, stream); },
      [](Release& release) { release.defer(); });
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
  if (real::cuPointerGetAttribute(&device, kPointerDevice, pointer) != kSuccess) return;
  if (real::cuPointerGetAttribute(&chunk, kPointerMapping, pointer) != kSuccess) {
    real::cuMemGetAddressRange_v2(nullptr, &chunk, pointer);
    chunk = std::max<size_t>(chunk, kPoolChunkBytes);
  }
  call.imported(pointer, device_index_of(process, device), linear_size(chunk).units);
}

}  // namespace

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream stream) {
  return allocate_async(dptr, bytesize, stream, false, real::cuMemAllocAsync, real::cuMemFreeAsync);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUstream stream) {
  return allocate_async(dptr, bytesize, stream, true, real::cuMemAllocAsync_ptsz,
                        real::cuMemFreeAsync_ptsz);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream stream) {
  return allocate_from_pool(dptr, bytesize, pool, stream, false, real::cuMemAllocFromPoolAsync,
                            real::cuMemFreeAsync);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream stream) {
  return allocate_from_pool(dptr, bytesize, pool, stream, true, real::cuMemAllocFromPoolAsync_ptsz,
                            real::cuMemFreeAsync_ptsz);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream stream) {
  return free_async(dptr, stream, real::cuMemFreeAsync);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream stream) {
  return free_async(dptr, stream, real::cuMemFreeAsync_ptsz);
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
  const bool in_use = real::cuMemPoolGetAttribute(pool, kPoolUsed, &used) != kSuccess || used != 0;
  // Removed before it is destroyed: other threads read every pool in the table.
  Pool forgotten;
  const bool known = hook.process().pools.remove(key_of(pool), forgotten);
  const CUresult result = real::cuMemPoolDestroy(pool);
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

}  // namespace fracgpu::cuda
