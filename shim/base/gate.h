// Lets any number of threads through at a time, or one thread alone.
//
// Passing costs two atomic additions. Threads that find the gate closed sleep. Only for members of
// Process: a forked child makes its own.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "shim/base/clock.h"
#include "shim/base/sleep_lock.h"
#include "shim/base/spin_lock.h"

namespace fracgpu {

class Gate {
 public:
  void enter() {
    if ((word_.fetch_add(1, std::memory_order_acquire) & kClosed) != 0) [[unlikely]]
      wait();
  }
  void leave() { word_.fetch_sub(1, std::memory_order_release); }

  // Waits while another thread has closed it.
  void await_open() {
    if ((word_.load(std::memory_order_acquire) & kClosed) == 0) [[likely]]
      return;
    enter();
    leave();
  }

  // Closes it and waits until no thread is inside. False, with the gate open, if a thread was
  // inside for 20 ms: a driver's call may take that long. The calling thread must not be inside.
  // Functions that it calls before `open` may enter and leave.
  [[gnu::cold]] bool close() {
    constexpr int kRounds = 200;
    constexpr long kPause_ns = 100'000;
    lock_.lock();
    owner_.store(self(), std::memory_order_relaxed);
    word_.fetch_or(kClosed, std::memory_order_acquire);
    for (int round = 0; round < kRounds; ++round) {
      if (word_.load(std::memory_order_acquire) == kClosed) return true;
      sleep_ns(kPause_ns);
    }
    open();
    return false;
  }
  [[gnu::cold]] void open() {
    word_.fetch_and(~kClosed, std::memory_order_release);
    owner_.store(0, std::memory_order_relaxed);
    lock_.unlock();
  }

 private:
  static constexpr uint32_t kClosed = uint32_t{1} << 31;

  static long self() { return syscall(SYS_gettid); }

  [[gnu::cold, gnu::noinline]] void wait() {
    if (owner_.load(std::memory_order_relaxed) == self()) return;
    do {
      leave();
      const Locked<SleepLock> lock(lock_);
    } while ((word_.fetch_add(1, std::memory_order_acquire) & kClosed) != 0);
  }

  SleepLock lock_;                 // held while it is closed
  std::atomic<uint32_t> word_{0};  // how many threads are inside, and kClosed
  std::atomic<long> owner_{0};     // the thread that has closed it
};

}  // namespace fracgpu
