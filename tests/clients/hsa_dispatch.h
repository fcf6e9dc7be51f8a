// Dispatches a kernel with scratch memory to an HSA queue. The simulated kernel driver runs no
// kernels, but its packet processor requests the scratch as a real one does.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "tests/clients/hip_api.h"

namespace client::hip {

// Submits a kernel of 2^20 lanes, each with `private_bytes` of scratch. Waits for its end for up to
// 10 s, or until the queue's error callback sets `is_dead`. True if the kernel has ended.
inline bool dispatch(void* hsa_queue, uint32_t private_bytes,
                     const std::atomic<bool>* is_dead = nullptr) {
  struct Signal {
    uint64_t handle;
  };
  struct Queue {
    uint32_t type, features;
    char* packets;
    Signal doorbell;
    uint32_t size;
  };
  struct Packet {
    uint16_t header, dimensions = 1, group[3] = {256, 1, 1}, reserved = 0;
    uint32_t grid[3] = {1u << 20, 1, 1}, private_bytes = 0, group_bytes = 0;
    uint64_t kernel = 0, arguments = 0, more = 0;
    Signal completion{};
  } packet;
  static_assert(sizeof(Packet) == 64);
  auto* const queue = static_cast<Queue*>(hsa_queue);
  packet.private_bytes = private_bytes;
  call("hsa_signal_create", int64_t{1}, 0u, static_cast<void*>(nullptr), &packet.completion);
  using Add = uint64_t (*)(const void*, uint64_t);
  const uint64_t place =
      reinterpret_cast<Add>(function("hsa_queue_add_write_index_screlease"))(queue, 1);
  auto* const slot = queue->packets + place % queue->size * sizeof packet;
  std::memcpy(slot + 4, &packet.group, sizeof packet - 4);
  constexpr uint32_t kKernelDispatch = 2, kOneDimension = 1u << 16;
  __atomic_store_n(reinterpret_cast<uint32_t*>(slot), kKernelDispatch | kOneDimension,
                   __ATOMIC_RELEASE);
  call("hsa_signal_store_screlease", queue->doorbell, static_cast<int64_t>(place));
  using Wait = int64_t (*)(Signal, int, int64_t, uint64_t, int);
  const auto wait = reinterpret_cast<Wait>(function("hsa_signal_wait_scacquire"));
  constexpr int kEqual = 0, kBlocked = 0, kPieces = 1000;
  constexpr uint64_t kPiece = 1'000'000;  // of a device's clock of 100 MHz: 10 ms
  int64_t left = 1;
  for (int i = 0; i < kPieces && left != 0 && (is_dead == nullptr || !*is_dead); ++i) {
    left = wait(packet.completion, kEqual, 0, kPiece, kBlocked);
  }
  call("hsa_signal_destroy", packet.completion);
  return left == 0;
}

}  // namespace client::hip
