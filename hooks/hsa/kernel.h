// Watches the runtime's requests to AMD's kernel driver (KFD) at its ioctls. Memory that the
// runtime takes on its own account, such as its own queue and the scratch memory of kernels, is
// charged before KFD gives it. KFD also appears to have only as much memory as the cap has left. A
// runtime under a cap then behaves as on a device of that size: it reserves less, leaves save areas
// in host memory, and runs kernels that need scratch memory with fewer waves.
#pragma once

namespace fracgpu::hsa {

// Starts to watch. The runtime must be loaded, and must not have opened KFD yet. Repeated calls are
// cheap. A failure is reported once.
void watch_kernel_calls();
bool kernel_calls_are_watched();

// While it lives, KFD appears to have no device memory left for the calling thread, so that the
// runtime uses what it has. A thread must not hold two at once.
class NoMoreMemory {
 public:
  NoMoreMemory();
  ~NoMoreMemory();
  NoMoreMemory(const NoMoreMemory&) = delete;
  NoMoreMemory& operator=(const NoMoreMemory&) = delete;

  // Whether KFD's memory is watched, and the thread holds no NoMoreMemory.
  static bool is_possible();
  // Whether the thread has given back memory to KFD since it made its NoMoreMemory, which still
  // lives.
  static bool has_freed();
};

// While it lives, each block that the calling thread's runtime gets of KFD is for the small
// allocations of this pool (shim/tracking/block_cache.h).
class BlockScope {
 public:
  BlockScope(int device_index, int pool);
  ~BlockScope();
  BlockScope(const BlockScope&) = delete;
  BlockScope& operator=(const BlockScope&) = delete;
};

// Makes the runtime give back unused memory of a device: scratch memory, empty blocks. True if it
// did. The caller must hold no lock, neither ours nor the runtime's.
bool trim_runtime(const char* device_key);

}  // namespace fracgpu::hsa
