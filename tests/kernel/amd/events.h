// KFD's events: what threads of a process wait for, and what a completed packet sets.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

struct kfd_event_data;

namespace kfd {

class Events {
 public:
  // Where the number of the event that is waited for is shown.
  void report_to(uint32_t* where) { waits_for_ = where; }

  // The number, or 0 when there are too many.
  uint32_t create(bool auto_reset);
  bool destroy(uint32_t event);
  bool set(uint32_t event);
  bool reset(uint32_t event);
  // As AMDKFD_IOC_WAIT_EVENTS: 0 and a result, or -errno.
  long wait(const std::vector<uint32_t>& wanted, bool all, uint32_t timeout_ms, uint32_t* result);

 private:
  struct Event {
    bool auto_reset = false, on = false;
    std::vector<bool*> waiters;  // each one's mark: an event wakes all who wait for it
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint32_t, Event> events_;
  uint32_t last_ = 0;
  uint32_t* waits_for_ = nullptr;
};

}  // namespace kfd
