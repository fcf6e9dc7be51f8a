// The program's memory pools: what each is charged to, and which one a device uses.
#pragma once

#include "hooks/cuda/hook.h"

namespace fracgpu::cuda {

inline uint64_t key_of(CUmemoryPool pool) {
  return reinterpret_cast<uint64_t>(pool);
}

// The device index of a pool, or Process::kFault, or Process::kNotCapped for pools of host memory
// and imported ones.
int index_of_pool(Process& process, CUmemoryPool handle);

// A device's current pool, as the calling thread has seen it.
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

// The current pool of the device, with its device index.
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

// Has the driver give back what it keeps of the pool.
void trim_pool(uint64_t key);

}  // namespace fracgpu::cuda
