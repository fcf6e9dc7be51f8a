// Estimated sizes of contexts, and of what their streams add.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shim/charge/linear.h"

namespace fracgpu::cuda {

// In bytes. Contexts grow with the number of multiprocessors, because each one has stacks for its
// resident threads. Published figures are 3 to 4 MiB for each (tests/unit/context_size_test.cc).
// The 512 MiB cover drivers and small GPUs without published figures.
constexpr uint64_t most_context_bytes(int multiprocessors) {
  constexpr uint64_t kLeast = 512u << 20, kEach = (9u << 20) / 2;
  return std::max(kLeast, static_cast<uint64_t>(std::max(multiprocessors, 0)) * kEach);
}

// The number of pages that the driver takes when a context has `number` streams at once for the
// first time. libcuda 535.261.03 and 550.163.01 take exactly that, for each kind of stream.
// 470.256.02 takes 2 MiB where this is 2 pages, and 3 MiB at the 122nd and each 128th after that.
// tests/kernel/nvidia/figures_test.py measures them by the kernel's count.
inline constexpr uint64_t kMostPagesOfStream = 2;
constexpr uint64_t pages_of_stream(uint64_t number) {
  constexpr uint64_t kFirst = 10, kStep = 16, kFurtherStep = 64;
  if (number < kFirst || number % kStep != kFirst) return 0;
  return number % kFurtherStep == 58 ? kMostPagesOfStream : 1;
}

// In units: the memory that the driver takes for stacks and other local memory if each thread that
// can be resident has `bytes`. libcuda 535.261.03 takes exactly that, for each of 74 sizes from
// 1,024 to 65,536 bytes.
constexpr uint64_t local_memory(size_t bytes, int multiprocessors, int threads) {
  constexpr uint64_t kOfThread = 16, kOfMultiprocessor = 32 << 10;
  constexpr uint64_t kMost = 1 << 30;  // no device has room for more
  const auto round_up = [](uint64_t size, uint64_t step) {
    return (size + step - 1) / step * step;
  };
  const uint64_t of_thread = round_up(std::min<uint64_t>(bytes, kMost), kOfThread);
  const uint64_t of_multiprocessor =
      round_up(of_thread * static_cast<uint64_t>(threads), kOfMultiprocessor);
  return round_up(of_multiprocessor * static_cast<uint64_t>(multiprocessors), kPageBytes) /
         layout::kUnit;
}

}  // namespace fracgpu::cuda
