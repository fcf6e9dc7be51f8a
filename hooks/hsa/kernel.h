// What the runtime asks AMD's kernel driver (KFD) for, seen at its ioctls: memory that it takes on
// its own account, such as its own queue and the scratch memory of kernels, is charged before KFD
// gives it, and KFD seems to have as much as the cap has left. A runtime under a cap then does what
// it does on a device of that size: it reserves less, leaves save areas in host memory, runs
// kernels that need scratch memory with fewer waves.
#pragma once

namespace fracgpu::hsa {

// From now on. The runtime must be loaded, and not have opened KFD yet. Cheap when done before.
// Where it cannot be done, one line says so.
void watch_kernel_calls();
bool kernel_calls_are_watched();

// While it lives, KFD seems to the calling thread to have no device memory left, so that the
// runtime makes do with what it has. Two do not live at once.
class NoMoreMemory {
 public:
  NoMoreMemory();
  ~NoMoreMemory();
  NoMoreMemory(const NoMoreMemory&) = delete;
  NoMoreMemory& operator=(const NoMoreMemory&) = delete;

  // Whether KFD's memory is watched, and none lives.
  static bool is_possible();
  // Whether the runtime has given some of its memory back meanwhile.
  static bool has_freed();
};

// Makes the runtime give back what it keeps of a device without using it: scratch memory, empty
// blocks. True if it did. The caller holds no lock, neither ours nor the runtime's.
bool trim_runtime(const char* device_key);

}  // namespace fracgpu::hsa
