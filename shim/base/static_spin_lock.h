// A spin lock for objects with static storage, which a forked child inherits in the state in which
// the parent's threads had them. A child has only the thread that forked: a lock that another
// thread of the parent held would never be given back there. So a thread of the child takes such a
// lock over.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/base/backoff.h"
#include "shim/base/fork_page.h"
#include "shim/base/spin_lock.h"

namespace fracgpu {

// The protected data must be consistent at every instruction: a child takes over what a fork
// interrupted. Any thread may use it at any time; it costs a few nanoseconds more than a SpinLock.
class StaticSpinLock {
 public:
  void lock() {
    const uint32_t generation = fork_generation();
    const uint32_t own = generation != 0 ? generation : kUntold;
    for (Backoff backoff;; backoff.wait()) {
      uint32_t holder = holder_.load(std::memory_order_relaxed);
      const bool left_by_fork = holder != own && holder != kUntold && own != kUntold;
      if ((holder == kFree || left_by_fork) &&
          holder_.compare_exchange_weak(holder, own, std::memory_order_acquire)) {
        return;
      }
    }
  }
  void unlock() { holder_.store(kFree, std::memory_order_release); }

 private:
  static constexpr uint32_t kFree = 0;
  // The holder's number while forks cannot be detected: every process waits for it.
  static constexpr uint32_t kUntold = UINT32_MAX;

  std::atomic<uint32_t> holder_{kFree};  // the generation of the process whose thread holds it
};

}  // namespace fracgpu
