// Implements events.h by the rules of kfd_events.c in Linux 6.6. KFD has events' ages since 1.14.
#include "events.h"

#include <linux/kfd_ioctl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>

namespace kfd {

uint32_t Events::create(bool auto_reset, bool is_signal) {
  const std::lock_guard guard(mutex_);
  for (uint32_t tried = 1; tried < KFD_SIGNAL_EVENT_LIMIT; ++tried) {
    last_ = last_ % (KFD_SIGNAL_EVENT_LIMIT - 1) + 1;
    const auto [made, is_new] = events_.try_emplace(last_);
    if (!is_new) continue;
    made->second.auto_reset = auto_reset;
    made->second.is_signal = is_signal;
    return last_;
  }
  return 0;
}

bool Events::destroy(uint32_t event) {
  const std::lock_guard guard(mutex_);
  changed_.notify_all();
  return events_.erase(event) != 0;
}

bool Events::set(uint32_t event) {
  const std::lock_guard guard(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) return false;
  Event& e = found->second;
  e.on = !e.auto_reset || e.waiters.empty();
  ++e.age;
  for (bool* const waiter : e.waiters) *waiter = true;
  changed_.notify_all();
  return true;
}

bool Events::reset(uint32_t event) {
  const std::lock_guard guard(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) return false;
  found->second.on = false;
  return true;
}

long Events::wait(std::vector<Wanted>& wanted, bool all, uint32_t timeout_ms, uint32_t* result) {
  constexpr uint32_t kForever = UINT32_MAX;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  std::unique_lock lock(mutex_);
  const auto all_there = [&] {
    return std::ranges::all_of(wanted,
                               [&](const Wanted& one) { return events_.contains(one.event); });
  };
  *result = KFD_IOC_WAIT_RESULT_FAIL;
  if (!all_there()) return -EINVAL;
  const auto marks = std::make_unique<bool[]>(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    Event& event = events_[wanted[i].event];
    if (!event.is_signal) wanted[i].last_age = 0;
    marks[i] = event.on || (wanted[i].last_age != 0 && wanted[i].last_age != event.age);
    if (event.auto_reset) event.on = false;
    event.waiters.push_back(&marks[i]);
  }
  if (waits_for_ != nullptr && !wanted.empty()) *waits_for_ = wanted.back().event;
  long answer = 0;
  for (bool in_time = timeout_ms != 0;;) {
    const auto set = std::count(marks.get(), marks.get() + wanted.size(), true);
    if (!all_there()) {
      answer = -EIO;
      break;
    }
    if (all ? static_cast<size_t>(set) == wanted.size() : set != 0) {
      *result = KFD_IOC_WAIT_RESULT_COMPLETE;
      break;
    }
    if (!in_time) {
      *result = KFD_IOC_WAIT_RESULT_TIMEOUT;
      break;
    }
    if (timeout_ms == kForever) {
      changed_.wait(lock);
    } else {
      in_time = changed_.wait_until(lock, until) == std::cv_status::no_timeout;
    }
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto found = events_.find(wanted[i].event);
    if (found == events_.end()) continue;
    std::erase(found->second.waiters, &marks[i]);
    if (marks[i] && wanted[i].last_age != 0) wanted[i].last_age = found->second.age;
  }
  return answer;
}

}  // namespace kfd
