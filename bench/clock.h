// The clock of the benchmarks: CLOCK_MONOTONIC, which is one clock for all processes.
#pragma once

#include <time.h>

#include <cstdint>

namespace bench {

inline uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace bench
