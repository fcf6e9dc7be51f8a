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

  // The event's number, or 0 if there are too many. `is_signal`: of type KFD_IOC_EVENT_SIGNAL.
  uint32_t create(bool auto_reset, bool is_signal);
  bool destroy(uint32_t event);
  bool set(uint32_t event);
  bool reset(uint32_t event);
  struct Wanted {
    uint32_t event;
    // If not 0, the event counts as set if its age is another one, so that no thread misses what
    // another one has waited for. Then the age is written here. Only for signals.
    uint64_t last_age;
  };
  // As AMDKFD_IOC_WAIT_EVENTS: 0 and a result, or -errno.
  long wait(std::vector<Wanted>& wanted, bool all, uint32_t timeout_ms, uint32_t* result);

 private:
  struct Event {
    bool auto_reset = false, is_signal = false, on = false;
    uint64_t age = 1;            // grows whenever it is set
    std::vector<bool*> waiters;  // one flag per waiter: setting an event wakes all of them
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint32_t, Event> events_;
  uint32_t last_ = 0;
  uint32_t* waits_for_ = nullptr;
};

}  // namespace kfd
