// What a context takes where nothing tells.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fracgpu::cuda {

// Bytes. Contexts grow with the number of multiprocessors, each of which has stacks for its
// resident threads; published figures are 3 to 4 MiB for each (tests/unit/context_size_test.cc).
// 512 MiB stand for drivers and small GPUs of which nobody has published any.
constexpr uint64_t most_context_bytes(int multiprocessors) {
  constexpr uint64_t kLeast = 512u << 20, kEach = (9u << 20) / 2;
  return std::max(kLeast, static_cast<uint64_t>(std::max(multiprocessors, 0)) * kEach);
}

}  // namespace fracgpu::cuda
