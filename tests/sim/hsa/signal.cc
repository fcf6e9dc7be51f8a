// Signals: life, values, waiting. The memory of a destroyed signal is kept for the next one and
// never unmapped, so that a late look at it is harmless.
#include "sim/hsa/signal.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <new>

namespace sim {
namespace {

constexpr uint64_t kLookAgain = 5000000;  // ns
constexpr int kSpins = 64;

std::atomic<uint32_t> changes{0};
std::atomic<uint32_t> sleepers{0};

struct SpareSignals {
  std::mutex mutex;
  std::vector<amd_signal_t*> list;
};
SpareSignals& spare() {
  static SpareSignals* const signals = new SpareSignals;
  return *signals;
}

}  // namespace

bool satisfied(int64_t value, uint32_t condition, int64_t compare) {
  switch (condition) {
    case HSA_SIGNAL_CONDITION_EQ:
      return value == compare;
    case HSA_SIGNAL_CONDITION_NE:
      return value != compare;
    case HSA_SIGNAL_CONDITION_LT:
      return value < compare;
    default:
      return value >= compare;
  }
}

hsa_signal_t make_signal(int64_t value) {
  amd_signal_t* signal = nullptr;
  {
    const Guard guard(spare().mutex);
    if (spare().list.empty()) {
      constexpr size_t kAtOnce = 64;
      auto* block = static_cast<amd_signal_t*>(
          ::operator new (kAtOnce * sizeof(amd_signal_t), std::align_val_t{64}));
      for (size_t i = 0; i < kAtOnce; ++i) spare().list.push_back(block + i);
    }
    signal = spare().list.back();
    spare().list.pop_back();
  }
  *signal = {};
  signal->kind = AMD_SIGNAL_KIND_USER;
  signal->value = value;
  return {reinterpret_cast<uint64_t>(signal)};
}

void drop_signal(hsa_signal_t handle) {
  amd_signal_t& signal = signal_of(handle);
  signal.kind = AMD_SIGNAL_KIND_INVALID;
  const Guard guard(spare().mutex);
  // The oldest is used first, at the other end.
  spare().list.insert(spare().list.begin(), &signal);
}

uint64_t timestamp() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000ULL + static_cast<uint64_t>(now.tv_nsec);
}

void signals_changed() {
  changes.fetch_add(1);
  if (sleepers.load() != 0) syscall(SYS_futex, &changes, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr);
}

void complete(hsa_signal_t signal, uint64_t start, uint64_t end) {
  if (signal.handle == 0) return;
  signal_of(signal).start_ts = start;
  signal_of(signal).end_ts = end;
  value_of(signal).fetch_sub(1);
  signals_changed();
}

SignalWaiter::SignalWaiter(uint64_t deadline) : deadline_(deadline) {
  sleepers.fetch_add(1);
}

SignalWaiter::~SignalWaiter() {
  sleepers.fetch_sub(1);
}

void SignalWaiter::look() {
  seen_ = changes.load();
}

bool SignalWaiter::pause() {
  for (int i = 0; i < kSpins; ++i) {
    if (changes.load() != seen_) return true;
    sched_yield();
  }
  const uint64_t now = timestamp();
  if (now >= deadline_) return false;
  const uint64_t length = std::min(kLookAgain, deadline_ - now);
  const timespec limit{0, static_cast<long>(length)};
  syscall(SYS_futex, &changes, FUTEX_WAIT_PRIVATE, seen_, &limit);
  return true;
}

}  // namespace sim

namespace {

hsa_signal_value_t wait(hsa_signal_t signal, hsa_signal_condition_t condition,
                        hsa_signal_value_t compare, uint64_t timeout) {
  const uint64_t now = sim::timestamp();
  const uint64_t deadline = timeout > UINT64_MAX - now ? sim::kForever : now + timeout;
  int64_t value = 0;
  sim::wait_for_signals(deadline, [&] {
    value = sim::value_of(signal).load();
    // In a forked child nobody is left who could change it.
    return sim::satisfied(value, condition, compare) || *sim::initialised == 0;
  });
  return value;
}

}  // namespace

SIM_API hsa_status_t hsa_signal_create(hsa_signal_value_t value, uint32_t count,
                                       const hsa_agent_t* consumers, hsa_signal_t* out) {
  SIM_CALL(hsa_signal_create);
  if (out == nullptr || (count != 0 && consumers == nullptr))
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  *out = sim::make_signal(value);
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_signal_create(hsa_signal_value_t value, uint32_t count,
                                           const hsa_agent_t* consumers, uint64_t /*attributes*/,
                                           hsa_signal_t* out) {
  SIM_CALL(hsa_amd_signal_create);
  if (out == nullptr || (count != 0 && consumers == nullptr))
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  *out = sim::make_signal(value);
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_signal_destroy(hsa_signal_t signal) {
  SIM_CALL(hsa_signal_destroy);
  if (signal.handle == 0) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  if (sim::signal_of(signal).kind != AMD_SIGNAL_KIND_USER) return HSA_STATUS_ERROR_INVALID_SIGNAL;
  sim::drop_signal(signal);
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_signal_value_pointer(hsa_signal_t signal,
                                                  volatile hsa_signal_value_t** out) {
  SIM_CALL(hsa_amd_signal_value_pointer);
  if (out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  if (signal.handle == 0) return HSA_STATUS_ERROR_INVALID_SIGNAL;
  *out = &sim::signal_of(signal).value;
  return HSA_STATUS_SUCCESS;
}

SIM_API uint32_t hsa_amd_signal_wait_any(uint32_t count, hsa_signal_t* signals,
                                         hsa_signal_condition_t* conditions,
                                         hsa_signal_value_t* values, uint64_t timeout,
                                         hsa_wait_state_t /*hint*/,
                                         hsa_signal_value_t* satisfying) {
  const uint64_t now = sim::timestamp();
  const uint64_t deadline = timeout > UINT64_MAX - now ? sim::kForever : now + timeout;
  uint32_t which = UINT32_MAX;
  sim::wait_for_signals(deadline, [&] {
    for (uint32_t i = 0; i < count && which == UINT32_MAX; ++i) {
      if (signals[i].handle == 0) continue;
      const int64_t value = sim::value_of(signals[i]).load();
      if (!sim::satisfied(value, conditions[i], values[i])) continue;
      if (satisfying != nullptr) *satisfying = value;
      which = i;
    }
    return which != UINT32_MAX || *sim::initialised == 0;
  });
  return which;
}

// 0 when all are satisfied; since ROCm 6.3.
SIM_API uint32_t hsa_amd_signal_wait_all(uint32_t count, hsa_signal_t* signals,
                                         hsa_signal_condition_t* conditions,
                                         hsa_signal_value_t* values, uint64_t timeout,
                                         hsa_wait_state_t /*hint*/,
                                         hsa_signal_value_t* satisfying) {
  const uint64_t now = sim::timestamp();
  const uint64_t deadline = timeout > UINT64_MAX - now ? sim::kForever : now + timeout;
  const bool all = sim::wait_for_signals(deadline, [&] {
    for (uint32_t i = 0; i < count; ++i) {
      const int64_t value = sim::value_of(signals[i]).load();
      if (!sim::satisfied(value, conditions[i], values[i])) return *sim::initialised == 0;
      if (satisfying != nullptr) satisfying[i] = value;
    }
    return true;
  });
  return all ? 0 : UINT32_MAX;
}

// Every order of memory access is the strongest one here.
#define SIM_LOAD(order)                                                                  \
  SIM_API hsa_signal_value_t hsa_signal_load_##order(hsa_signal_t signal) {              \
    return sim::value_of(signal).load();                                                 \
  }                                                                                      \
  SIM_API hsa_signal_value_t hsa_signal_wait_##order(                                    \
      hsa_signal_t signal, hsa_signal_condition_t condition, hsa_signal_value_t compare, \
      uint64_t timeout, hsa_wait_state_t /*hint*/) {                                     \
    return wait(signal, condition, compare, timeout);                                    \
  }
SIM_LOAD(relaxed)
SIM_LOAD(acquire)
SIM_LOAD(scacquire)

#define SIM_STORE(name)                                                           \
  SIM_API void hsa_signal_##name(hsa_signal_t signal, hsa_signal_value_t value) { \
    sim::value_of(signal).store(value);                                           \
    sim::signals_changed();                                                       \
  }
SIM_STORE(store_relaxed)
SIM_STORE(store_release)
SIM_STORE(store_screlease)
SIM_STORE(silent_store_relaxed)
SIM_STORE(silent_store_screlease)

#define SIM_UPDATE(name, method, order)                                                     \
  SIM_API void hsa_signal_##name##_##order(hsa_signal_t signal, hsa_signal_value_t value) { \
    sim::value_of(signal).method(value);                                                    \
    sim::signals_changed();                                                                 \
  }
#define SIM_ORDERED(order)                                                           \
  SIM_UPDATE(add, fetch_add, order)                                                  \
  SIM_UPDATE(subtract, fetch_sub, order)                                             \
  SIM_UPDATE(and, fetch_and, order)                                                  \
  SIM_UPDATE(or, fetch_or, order)                                                    \
  SIM_UPDATE(xor, fetch_xor, order)                                                  \
  SIM_API hsa_signal_value_t hsa_signal_exchange_##order(hsa_signal_t signal,        \
                                                         hsa_signal_value_t value) { \
    const int64_t before = sim::value_of(signal).exchange(value);                    \
    sim::signals_changed();                                                          \
    return before;                                                                   \
  }                                                                                  \
  SIM_API hsa_signal_value_t hsa_signal_cas_##order(                                 \
      hsa_signal_t signal, hsa_signal_value_t expected, hsa_signal_value_t value) {  \
    int64_t before = expected;                                                       \
    sim::value_of(signal).compare_exchange_strong(before, value);                    \
    sim::signals_changed();                                                          \
    return before;                                                                   \
  }
SIM_ORDERED(relaxed)
SIM_ORDERED(acquire)
SIM_ORDERED(scacquire)
SIM_ORDERED(release)
SIM_ORDERED(screlease)
SIM_ORDERED(acq_rel)
SIM_ORDERED(scacq_screl)
