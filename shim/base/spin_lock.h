// A small lock for state of one process that is accessed for nanoseconds.
//
// It costs one atomic exchange to take and one store to give back, which is half of what a pthread
// mutex costs. It spins for a moment and then lets other threads run, even those of lower priority
// (backoff.h).
//
// Only for members of Process and for objects that a thread makes for itself: a forked child makes
// its own Process, so it never waits for a lock that a thread of its parent held. Objects with
// static storage use a StaticSpinLock.
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
