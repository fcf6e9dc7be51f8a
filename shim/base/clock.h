// A coarse clock for intervals that need not be exact to the millisecond, the date, and a short
// sleep.
#pragma once

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

namespace fracgpu {

// Milliseconds since boot, a few behind at most; costs no system call.
inline uint64_t coarse_now_ms() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000;
}

// The same in seconds, which costs no division.
inline uint64_t coarse_now_s() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<uint64_t>(now.tv_sec);
}

// Milliseconds since 1970. By a system call, because all callers have the time for it. The vDSO's
// steps depend on when the clock ticks, so no two runs could be stepped through alike. And time()
// is a name that the loader binds by a search of the vDSO, when every program starts.
inline uint64_t unix_now_ms() {
  timespec now;
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000;
}

// Less than a second. By a system call, which is not a cancellation point.
inline void sleep_ns(long ns) {
  const timespec interval = {0, ns};
  syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &interval, nullptr);
}
inline void sleep_ms(long ms) {
  sleep_ns(ms * 1'000'000);
}

}  // namespace fracgpu
