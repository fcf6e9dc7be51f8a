// How a thread waits for another thread of the process that needs nanoseconds, or one call of a
// driver.
//
// It spins first, because the other thread is nearly done. Then it yields, because the other thread
// may have been preempted. Then it sleeps, because yielding runs no thread of lower priority: a
// real-time thread that only yields would wait for ever.
#pragma once

#include <errno.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>

#include "shim/base/clock.h"

namespace fracgpu {

class Backoff {
 public:
  // The next wait of one thread. Leaves errno alone.
  void wait() {
    if (steps_++ >= kSpins) wait_longer();
  }

  // The same, until `ms` have passed since the first sleep: false from then on.
  bool wait_at_most(uint64_t ms) {
    wait();
    if (end_ms_ == 0 && steps_ > kSpins + kYields) end_ms_ = coarse_now_ms() + ms;
    return end_ms_ == 0 || coarse_now_ms() < end_ms_;
  }

 private:
  // Some 50 us of yielding, if no other thread wants the core.
  static constexpr int kSpins = 64, kYields = 64;
  static constexpr long kShortest_ns = 20'000, kLongest_ns = 1'000'000;

  [[gnu::cold, gnu::noinline]] void wait_longer() {
    const int error = errno;
    if (steps_ <= kSpins + kYields) {
      sched_yield();
    } else {
      sleep_ns(pause_ns_);
      pause_ns_ = std::min(2 * pause_ns_, kLongest_ns);
    }
    errno = error;
  }

  int steps_ = 0;
  long pause_ns_ = kShortest_ns;
  uint64_t end_ms_ = 0;
};

}  // namespace fracgpu
