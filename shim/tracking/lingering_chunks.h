// Chunks of which the driver may still hold a part that the process has freed: in stream order, so
// that it goes at an unknown moment, or after other processes were given it.
//
// The live map forgets a chunk with its last user, and its charge is then overhead until a reading
// of the driver-reported usage. Where the driver puts a new allocation into the same chunk, that
// reading takes the chunk for the new one's, and nothing else would say that it stays when that one
// is freed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace fracgpu {

// Any thread, without a lock. No key is 0. A chunk is never taken out again: of one that lingers no
// more, the charge goes with a reading instead of at once.
class LingeringChunks {
 public:
  // Before the live map forgets the chunk with this key.
  void add(uint64_t key) {
    size_t count = 0;
    for (auto& each : keys_) {
      ++count;
      uint64_t before = 0;
      if (each.compare_exchange_strong(before, key) || before == key) return raise(count);
    }
    raise(count + 1);
  }

  // Also true of others, once there were too many.
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
  // Whoever sees the count sees the keys that it counts.
  void raise(size_t count) {
    size_t before = count_.load();
    while (before < count && !count_.compare_exchange_weak(before, count)) {
    }
  }

  // Programs that free small memory of cuMemAlloc in stream order are rare, and all its chunks may
  // linger then.
  std::atomic<size_t> count_{0};  // of `keys_`; one more where some found no place
  std::atomic<uint64_t> keys_[64] = {};
};

}  // namespace fracgpu
