// Chunks of which the driver may still hold a part that the process has freed. The part was freed
// in stream order, so that it goes at an unknown moment, or after other processes had imported it.
//
// The live map forgets a chunk with its last user. The chunk's charge is then overhead until a
// reading of the driver-reported usage. If the driver puts a new allocation into the same chunk,
// that reading attributes the chunk to the new allocation. Without this table, nothing would show
// that the chunk stays when the new one is freed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace fracgpu {

// Any thread, without a lock. No key is 0. A chunk is never removed: if it no longer lingers, a
// reading gives its charge back instead of the free itself.
class LingeringChunks {
 public:
  // Called before the live map forgets the chunk with this key.
  void add(uint64_t key) {
    size_t count = 0;
    for (auto& each : keys_) {
      ++count;
      uint64_t before = 0;
      if (each.compare_exchange_strong(before, key) || before == key) return raise(count);
    }
    raise(count + 1);
  }

  // Also true for other chunks, once there were too many.
  bool may_have(uint64_t key) const {
    const size_t count = count_.load(std::memory_order_acquire);
    if (count == 0) [[likely]]
      return false;
    const auto end = std::begin(keys_) + std::min(count, std::size(keys_));
    return count > std::size(keys_) || std::any_of(std::begin(keys_), end, [&](const auto& each) {
             return each.load() == key;
           });
  }

 private:
  // A thread that sees the count sees the keys that it counts.
  void raise(size_t count) {
    size_t before = count_.load();
    while (before < count && !count_.compare_exchange_weak(before, count)) {
    }
  }

  // Programs that free small memory of cuMemAlloc in stream order are rare, and all their chunks
  // may linger then.
  std::atomic<size_t> count_{0};  // of `keys_`; one more if some found no place
  std::atomic<uint64_t> keys_[64] = {};
};

}  // namespace fracgpu
