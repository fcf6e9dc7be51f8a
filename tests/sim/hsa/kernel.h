// What the runtime asks AMD's kernel driver for, by the same ioctls as the real one: device memory
// for itself, the place of save areas, how much is available. Whoever stands between the runtime
// and the C library's ioctl sees them, and may refuse or change them.
//
// The driver's side is here too (kernel.cc). It is reached through libsimkfd's ioctl where that
// library is preloaded, and else at once.
#pragma once

#include <cstdint>

#include "sim/hsa/runtime.h"

namespace sim {

// What was asked for; 0: nothing.
using KernelHandle = uint64_t;

// The runtime's lock is held by whoever calls. 0 where the device is full, or the kernel says so.
KernelHandle take_from_device(const Agent& agent, uint64_t bytes);
void return_to_device(KernelHandle memory);

// The same for memory that is accounted for by the caller: whether the kernel lets it have some;
// and that it gave some back.
bool may_take(int device);
void has_returned(int device);

// Of a queue. It is on the device until it is unmapped.
struct SaveArea {
  void* address = nullptr;
  uint64_t bytes = 0;
  KernelHandle on_device = 0;  // 0: it stays in host memory
};
SaveArea map_save_area(const Agent& agent, uint64_t bytes);
void unmap_save_area(const SaveArea& area);

// A queue's number, from when the device knows it until it does no longer.
uint32_t connect_queue(const Agent& agent, const SaveArea& save_area);
void disconnect_queue(uint32_t queue);

uint64_t available_memory(const Agent& agent);

}  // namespace sim
