// Which of a driver's streams are being captured, and until when cached facts about a stream are
// valid.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/base/backoff.h"
#include "shim/base/hash_table.h"
#include "shim/base/spin_lock.h"

namespace fracgpu {

// Any thread may call any function. `stream` is a number that stands for a stream, and is not 0.
class StreamTable {
 public:
  // A capture begins in this stream. To be called before the driver is, so that a call after the
  // capture's beginning sees it.
  void begin_capture(uint64_t stream) {
    Backoff backoff;
    for (bool waits = true;; waits = backoff.wait_at_most(kMost_ms)) {
      Locked<SpinLock> lock(lock_);
      if (waits_.load() > 0 && waits) continue;
      Captured* const captured = captured_.insert(stream);
      if (captured == nullptr) {
        lost_ = true;  // out of host memory: there may always be one from now on
      } else {
        ++captured->times;
      }
      return count();
    }
  }

  // The capture has ended, or did not begin.
  void end_capture(uint64_t stream) {
    Locked<SpinLock> lock(lock_);
    Captured* const captured = captured_.find(stream);
    if (captured != nullptr && --captured->times == 0) captured_.erase(captured);
    count();
  }

  // The stream is about to be destroyed. Forgets it before the driver is called, since its handle
  // may mean another one at once; returns what `put_back` needs if the driver refuses.
  uint64_t take(uint64_t stream) {
    Locked<SpinLock> lock(lock_);
    uint64_t times = 0;
    if (Captured* const captured = captured_.find(stream)) {
      times = captured->times;
      captured_.erase(captured);
    }
    count();
    ++epoch_;
    return times;
  }
  void put_back(uint64_t stream, uint64_t times) {
    if (times == 0) return;
    Locked<SpinLock> lock(lock_);
    Captured* const captured = captured_.insert(stream);
    if (captured == nullptr) {
      lost_ = true;
    } else {
      captured->times += times;
    }
    count();
  }

  // The current pool of a device may have changed.
  void forget_pools() { ++epoch_; }

  // A thread asks the driver about a stream of another thread, which would end the stream's
  // capture. False: a stream is captured, so it must not ask. Otherwise no capture begins before
  // `end_wait`.
  bool begin_wait() {
    Locked<SpinLock> lock(lock_);
    if (any_captured()) return false;
    ++waits_;
    return true;
  }
  void end_wait() { --waits_; }

  // Waits until no thread asks the driver about streams any more, for example about a destroyed
  // one.
  void await_waits() const {
    Backoff backoff;
    while (waits_.load() > 0 && backoff.wait_at_most(kMost_ms)) {
    }
  }

  // Whether any stream of the process may be captured. A capture whose stream ended with its
  // context counts for ever.
  bool any_captured() const { return count_.load(std::memory_order_relaxed) != 0; }

  // Changes whenever something was forgotten: what a thread has cached is valid until then.
  uint64_t epoch() const { return epoch_.load(std::memory_order_acquire); }

 private:
  // Threads that ask about a stream are in a short call of the driver. See kLongCall_ms in
  // pool_table.cc.
  static constexpr uint64_t kMost_ms = 100;

  struct Captured {
    uint64_t key = 0;    // stream
    uint64_t times = 0;  // more than 1 during a second beginning, which will fail
  };
  void count() { count_.store(captured_.size() + (lost_ ? 1 : 0), std::memory_order_relaxed); }

  SpinLock lock_;
  HashTable<Captured, 8> captured_;
  bool lost_ = false;
  std::atomic<size_t> count_{0};
  std::atomic<int> waits_{0};
  std::atomic<uint64_t> epoch_{1};
};

}  // namespace fracgpu
