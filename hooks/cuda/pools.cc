// Pools are made, handed out, chosen and destroyed. Each pool is charged by what it has reserved,
// which is read before and after each call that may change it. If the driver itself gives a pool's
// memory back, the next reading of the pool shows it.
//
// Managed memory of a pool moves by itself to the device that uses it, as all managed memory does.
// The pool counts in full on its preferred device, or else on the device that was current when the
// program first got the pool.
#include "hooks/cuda/pools.h"

#include "hooks/cuda/pool_frees.h"
#include "hooks/cuda/streams.h"
#include "shim/charge/overhead.h"
#include "shim/charge/pools.h"
#include "shim/charge/refusal.h"

namespace fracgpu::cuda {
namespace {

CUmemoryPool handle_of(uint64_t key) {
  return reinterpret_cast<CUmemoryPool>(key);
}

bool reserved_by_pool(uint64_t key, uint64_t& bytes) {
  const OwnCalls own_calls;
  return real::cuMemPoolGetAttribute(handle_of(key), kPoolReserved, &bytes) == kSuccess;
}
bool used_of_pool(uint64_t key, uint64_t& bytes) {
  const OwnCalls own_calls;
  return real::cuMemPoolGetAttribute(handle_of(key), kPoolUsed, &bytes) == kSuccess;
}
constexpr PoolDriver kPools = {reserved_by_pool, trim_pool, used_of_pool};

// The device index that a pool with this location and type is charged to, or Process::kNotCapped /
// kFault.
int index_of_place(Process& process, const CUmemLocation& location, int type) {
  Context context;
  if (const int device = device_of(location); device >= 0) return device_index_of(process, device);
  if (type != kManaged) return Process::kNotCapped;
  return current_context(process, context) ? context.device_index : device_index_of(process, 0);
}

// The device index of a pool that is not known yet. Pools that the program made or requested by
// their place are already entered. The driver makes a device's default pool.
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

// Calls `call()`, which chooses the current pool of a place.
template <typename Call>
CUresult choose_pool(Call call) {
  Hook hook;
  // Called twice, so that no thread remembers for long what the driver answered meanwhile.
  if (hook.active()) hook.process().streams.forget_pools();
  const CUresult result = call();
  if (hook.active()) hook.process().streams.forget_pools();
  return result;
}

// Calls `call()`, which hands out a pool of the memory at `location`, and enters the pool. A pool
// that could take a device's memory uncounted is not handed out.
template <typename Call>
CUresult hand_out(const char* api, CUmemoryPool* pool, const CUmemLocation* location, int type,
                  Call call) {
  Hook hook;
  if (!hook.active() || pool == nullptr || location == nullptr) return call();
  Process& process = hook.process();
  const int device_index = index_of_place(process, *location, type);
  if (device_index == Process::kFault) {
    report_fault(process, api);
    return kOutOfMemory;
  }
  const CUresult result = call();
  if (result == kSuccess && device_index >= 0)
    process.pools.add(key_of(*pool), device_index, kPools);
  return result;
}

}  // namespace

// GCC loses the TLS model of the declaration.
[[gnu::tls_model("initial-exec")]] constinit thread_local RememberedPool remembered_pool;

void trim_pool(uint64_t key) {
  const OwnCalls own_calls;
  real::cuMemPoolTrimTo(handle_of(key), 0);
}

int index_of_pool(Process& process, CUmemoryPool handle) {
  Pool pool;
  const bool known = process.pools.find(key_of(handle), pool);
  return known ? pool.device_index : index_of_default_pool(process, handle);
}

CUresult find_current_pool(Process& process, CUdevice device, CUmemoryPool& pool,
                           int& device_index) {
  // Read before the driver is asked: its answer may be outdated when it is remembered.
  const uint64_t streams = process.streams.epoch(), contexts = process.contexts.epoch();
  const OwnCalls own_calls(process);
  const CUresult result = real::cuDeviceGetMemPool(&pool, device);
  if (result != kSuccess) return result;
  // The program may have made a pool of host memory the device's current one.
  device_index = index_of_pool(process, pool);
  // A fault is not remembered, so the next call tries again.
  if (device_index != Process::kFault)
    remembered_pool = {&process, streams, contexts, device, pool, device_index};
  return kSuccess;
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
  // The driver keeps memory whose free is not done yet. If the driver does not report when that
  // memory is gone, the frees must be done before the pool is destroyed.
  Pool living;
  if (!in_use && hook.process().pools.find(key_of(pool), living) && living.device_index >= 0 &&
      !usage_is_told(hook.process(), living.device_index)) {
    in_use = !frees_are_done(hook.process(), key_of(pool));
  }
  // Removed before the destruction: other threads read every pool in the table.
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
