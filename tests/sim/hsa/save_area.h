// What the runtime takes of a device for each compute queue.
#pragma once

#include <cstdint>

#include "sim/node/node_layout.h"

namespace sim {

// In bytes: the buffer for end-of-pipe events.
inline constexpr uint64_t kEndOfPipe = 4096;

// The area into which the device saves the queue's waves; 0 where the kernel has no shared virtual
// memory for the device, and the area is in host memory.
uint64_t save_area_bytes(const DeviceRow& device);

// Memory for the private segments of a queue's kernels, in bytes, that is taken when the queue is
// made: `per_thread` bytes for each thread that the device can run.
uint64_t scratch_bytes(const DeviceRow& device, uint32_t per_thread);

}  // namespace sim
