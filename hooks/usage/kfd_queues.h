// What queues take of a device, by KFD's properties of it: the runtime asks the kernel for that
// memory by itself, in amounts that follow from the device.
#pragma once

#include <cstdint>

namespace fracgpu::kfd {

// In bytes, of each compute queue: the area into which the device saves the queue's waves when it
// turns to another one. Less than is taken is never answered; 0 where the kernel keeps that area in
// host memory, and where it does not show the device. Reads files: for cold paths.
uint64_t save_area_bytes(const char* device_key);

// In bytes, of a queue that is made with so many bytes of private memory for each thread, a
// multiple of 16; or of several queues, with the sum of theirs.
uint64_t scratch_bytes(const char* device_key, uint64_t bytes_per_thread);

}  // namespace fracgpu::kfd
