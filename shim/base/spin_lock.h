// A small lock for state that lives in one process and is touched for nanoseconds.
//
// One atomic exchange to take, one store to give back, which is half of what a pthread mutex
// costs. It yields instead of spinning for long, so that a preempted holder is let run.
//
// Only for members of Process and of what a thread makes for itself: a forked child makes its own
// Process, so it never waits for a lock that some thread of its parent held. An object with static
// storage takes a StaticSpinLock.
#pragma once

#include <sched.h>

#include <atomic>

namespace fracgpu {

class SpinLock {
 public:
  void lock() {
    while (locked_.exchange(true, std::memory_order_acquire)) wait();
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  [[gnu::cold, gnu::noinline]] void wait() const {
    for (int spins = 0; locked_.load(std::memory_order_relaxed); ++spins) {
      if (spins > 64) sched_yield();
    }
  }

  std::atomic<bool> locked_{false};
};

template <typename Lock>
class Locked {
 public:
  explicit Locked(Lock& lock) : lock_(lock) { lock_.lock(); }
  ~Locked() { lock_.unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  Lock& lock_;
};

}  // namespace fracgpu
