// A small lock for state that lives in one process and is touched for nanoseconds.
//
// One atomic exchange to take, one store to give back, which is half of what a pthread mutex
// costs. It spins for a moment and then lets others run, whose priority may be lower (backoff.h).
//
// Only for members of Process and of what a thread makes for itself: a forked child makes its own
// Process, so it never waits for a lock that some thread of its parent held. An object with static
// storage takes a StaticSpinLock.
#pragma once

#include <atomic>

#include "shim/base/backoff.h"

namespace fracgpu {

class SpinLock {
 public:
  void lock() {
    while (locked_.exchange(true, std::memory_order_acquire)) wait();
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  [[gnu::cold, gnu::noinline]] void wait() const {
    for (Backoff backoff; locked_.load(std::memory_order_relaxed);) backoff.wait();
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
