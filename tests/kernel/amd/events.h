// KFD's events: threads wait for them, and completed packets set them.
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
  // Where to publish the number of the event that was waited for last.
  void report_to(uint32_t* where) { waits_for_ = where; }

  // The event's number, or 0 if there are too many.
  uint32_t create(bool auto_reset);
  bool destroy(uint32_t event);
  bool set(uint32_t event);
  bool reset(uint32_t event);
  // As AMDKFD_IOC_WAIT_EVENTS: 0 and a result, or -errno.
  long wait(const std::vector<uint32_t>& wanted, bool all, uint32_t timeout_ms, uint32_t* result);

 private:
  struct Event {
    bool auto_reset = false, on = false;
    std::vector<bool*> waiters;  // one flag per waiter: setting an event wakes all of them
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint32_t, Event> events_;
  uint32_t last_ = 0;
  uint32_t* waits_for_ = nullptr;
};

}  // namespace kfd
