// A lock for work that may take milliseconds: a reading of the driver, joining a ledger. Threads
// that wait for it sleep, and leave the processor to others. The holder is not cancelled (see
// no_cancellation.h), so several such locks are given back in the opposite order.
//
// Also for objects with static storage, like StaticSpinLock: a forked child takes over a lock that
// a thread of its parent held. So the protected data must be consistent at every instruction.
#pragma once

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "shim/base/fork_page.h"

namespace fracgpu {

class SleepLock {
 public:
  void lock() {
    const uint32_t generation = fork_generation() & kUntold;
    const uint32_t own = generation != 0 ? generation : kUntold;
    uint32_t wanted = own << 1;
    for (int spins = 0;; ++spins) {
      uint32_t word = word_.load(std::memory_order_relaxed);
      const uint32_t holder = word >> 1;
      const bool left_by_fork = holder != own && holder != kUntold && own != kUntold;
      if (word == kFree || left_by_fork) {
        if (!word_.compare_exchange_weak(word, wanted, std::memory_order_acquire)) continue;
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation_);
        return;
      }
      if (spins < kSpins) continue;
      if ((word & kAwaited) == 0 && !word_.compare_exchange_weak(word, word | kAwaited)) continue;
      futex(FUTEX_WAIT_PRIVATE, word | kAwaited);
      wanted = own << 1 | kAwaited;  // for other threads that may be waiting
    }
  }
  void unlock() {
    const int cancellation = cancellation_;
    if ((word_.exchange(kFree, std::memory_order_release) & kAwaited) != 0)
      futex(FUTEX_WAKE_PRIVATE, 1);
    pthread_setcancelstate(cancellation, nullptr);
  }

 private:
  static constexpr uint32_t kFree = 0, kAwaited = 1;
  // The holder's number while forks cannot be detected: every process waits for it.
  static constexpr uint32_t kUntold = UINT32_MAX >> 1;
  // Most holders need less than a microsecond. Eight threads on two cores that load and unload
  // modules take the same 9 us per pair with 0 to 10,000.
  static constexpr int kSpins = 100;

  [[gnu::cold, gnu::noinline]] void futex(int operation, uint32_t value) {
    const int error = errno;
    syscall(SYS_futex, &word_, operation, value, nullptr);
    errno = error;
  }

  // The generation of the process whose thread holds it, and whether a thread sleeps for it.
  std::atomic<uint32_t> word_{kFree};
  int cancellation_ = PTHREAD_CANCEL_ENABLE;  // the holder's state before
};

}  // namespace fracgpu
