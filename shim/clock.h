// The coarse clock, for intervals that nobody needs to the millisecond, and a short sleep.
#pragma once

#include <time.h>

#include <cstdint>

namespace fracgpu {

// Milliseconds since boot, a few behind at most; costs no system call.
inline uint64_t coarse_now_ms() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000;
}

inline void sleep_ms(long ms) {
  const timespec interval = {0, ms * 1'000'000};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &interval, nullptr);
}

}  // namespace fracgpu
