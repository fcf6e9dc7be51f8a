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

// The current pool of the device, with its device index.
CUresult current_pool(Process& process, CUdevice device, CUmemoryPool& pool, int& device_index);

// Has the driver give back what it keeps of the pool.
void trim_pool(uint64_t key);

}  // namespace fracgpu::cuda
