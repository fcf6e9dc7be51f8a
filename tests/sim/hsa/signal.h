// Signals: 64-bit values in memory that threads, queues and copies wait on. A waiter sleeps on one
// counter of the process that every change through the library moves, and looks again after a while
// in any case, because programs may also write a signal's value directly.
#pragma once

#include <pthread.h>

#include <atomic>
#include <functional>

#include "sim/hsa/runtime.h"

namespace sim {

inline constexpr uint64_t kForever = UINT64_MAX;

inline amd_signal_t& signal_of(hsa_signal_t handle) {
  return *reinterpret_cast<amd_signal_t*>(handle.handle);
}
inline std::atomic_ref<int64_t> value_of(hsa_signal_t handle) {
  return std::atomic_ref<int64_t>(const_cast<int64_t&>(signal_of(handle).value));
}

bool satisfied(int64_t value, uint32_t condition, int64_t compare);

hsa_signal_t make_signal(int64_t value);
void drop_signal(hsa_signal_t signal);

// Wakes all who wait for any signal.
void signals_changed();

uint64_t timestamp();  // ns; the clock of processor and devices alike
// Subtracts one, as devices do when a packet or a copy is done; nothing for a null signal.
void complete(hsa_signal_t signal, uint64_t start, uint64_t end);

class SignalWaiter {
 public:
  explicit SignalWaiter(uint64_t deadline);
  ~SignalWaiter();
  // Call, look, pause, look, … : a change after the call of look() ends the pause.
  void look();
  bool pause();  // false at the deadline

 private:
  uint64_t deadline_;
  uint32_t seen_ = 0;
};

// Returns the predicate's last answer, which is false only at the deadline.
template <typename Predicate>
bool wait_for_signals(uint64_t deadline, Predicate&& predicate) {
  if (predicate()) return true;
  SignalWaiter waiter(deadline);
  for (;;) {
    waiter.look();
    if (predicate()) return true;
    if (!waiter.pause()) return predicate();
  }
}

// A thread of the library's own, which no signal of the program's ever reaches.
void start_thread(void (*body)(void*), void* argument, pthread_t* out);

// Runs when all of these signals are zero: at once, or later in the copies' thread.
void when_zero(uint32_t count, const hsa_signal_t* signals, std::function<void()> body);

// Handlers and copies whose signals have not come yet never run.
void forget_waiting_work();

}  // namespace sim
