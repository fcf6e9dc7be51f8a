// The program's memory pools: the device that each pool is charged to, and each device's current
// pool.
#pragma once

#include "hooks/cuda/hook.h"

namespace fracgpu::cuda {

inline uint64_t key_of(CUmemoryPool pool) {
  return reinterpret_cast<uint64_t>(pool);
}

// The device index of a pool. Process::kNotCapped for pools of host memory and for imported pools;
// Process::kFault if the device cannot be found.
int index_of_pool(Process& process, CUmemoryPool handle);

// A device's current pool, as the calling thread saw it last.
struct RememberedPool {
  const Process* process = nullptr;
  uint64_t streams = 0, contexts = 0;  // epochs
  CUdevice device = -1;
  CUmemoryPool pool = nullptr;
  int device_index = Process::kNotCapped;

  bool is(const Process& owner, CUdevice ordinal) const {
    return device == ordinal && process == &owner && streams == owner.streams.epoch() &&
           contexts == owner.contexts.epoch();
  }
};
[[gnu::tls_model("initial-exec")]] extern constinit thread_local RememberedPool remembered_pool;

// Finds the device's current pool and its device index.
[[gnu::cold]] CUresult find_current_pool(Process& process, CUdevice device, CUmemoryPool& pool,
                                         int& device_index);
inline CUresult current_pool(Process& process, CUdevice device, CUmemoryPool& pool,
                             int& device_index) {
  const RememberedPool& last = remembered_pool;
  if (!last.is(process, device)) return find_current_pool(process, device, pool, device_index);
  pool = last.pool;
  device_index = last.device_index;
  return kSuccess;
}

// Makes the driver give back the pool's unused memory.
void trim_pool(uint64_t key);

}  // namespace fracgpu::cuda
