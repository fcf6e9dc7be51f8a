// Work that waits for signals: handlers of the program's, and copies whose turn has not come. Each
// kind has one thread, started on first use, that runs whatever is ready, in the order of its
// coming; nothing that is not ready holds up what is.
#include <pthread.h>
#include <signal.h>

#include <functional>
#include <list>

#include "sim/hsa/signal.h"

namespace sim {
namespace {

class Worker {
 public:
  struct Job {
    std::function<bool()> ready;
    std::function<bool()> run;  // true: again when it is ready once more
  };

  void add(Job job) {
    {
      const Guard guard(mutex_);
      jobs_.push_back(std::move(job));
      if (!started_) {
        pthread_t thread;
        start_thread([](void* self) { static_cast<Worker*>(self)->work(); }, this, &thread);
        pthread_detach(thread);
        started_ = true;
      }
    }
    signals_changed();
  }

  void forget() {
    const Guard guard(mutex_);
    jobs_.clear();
  }

 private:
  void work() {
    std::list<Job> ready;
    for (;;) {
      wait_for_signals(kForever, [&] {
        const Guard guard(mutex_);
        for (auto at = jobs_.begin(); at != jobs_.end();) {
          const auto job = at++;
          if (job->ready()) ready.splice(ready.end(), jobs_, job);
        }
        return !ready.empty();
      });
      while (!ready.empty()) {
        const bool again = ready.front().run();
        const Guard guard(mutex_);
        if (again) jobs_.push_back(ready.front());
        ready.pop_front();
      }
    }
  }

  std::mutex mutex_;
  std::list<Job> jobs_;
  bool started_ = false;
};

Worker& handlers() {
  static Worker* const worker = new Worker;
  return *worker;
}
Worker& copies() {
  static Worker* const worker = new Worker;
  return *worker;
}

bool all_zero(const std::vector<hsa_signal_t>& signals) {
  for (const hsa_signal_t signal : signals) {
    if (signal.handle != 0 && value_of(signal).load() != 0) return false;
  }
  return true;
}

}  // namespace

void start_thread(void (*body)(void*), void* argument, pthread_t* out) {
  struct Start {
    void (*body)(void*);
    void* argument;
  };
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_create(
      out, nullptr,
      [](void* given) -> void* {
        const Start start = *static_cast<Start*>(given);
        delete static_cast<Start*>(given);
        start.body(start.argument);
        return nullptr;
      },
      new Start{body, argument});
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void when_zero(uint32_t count, const hsa_signal_t* signals, std::function<void()> body) {
  std::vector<hsa_signal_t> awaited(signals, signals + count);
  if (all_zero(awaited)) return body();
  copies().add({[awaited = std::move(awaited)] { return all_zero(awaited); },
                [body = std::move(body)] {
                  body();
                  return false;
                }});
}

void forget_waiting_work() {
  handlers().forget();
  copies().forget();
}

}  // namespace sim

SIM_API hsa_status_t hsa_amd_signal_async_handler(hsa_signal_t signal,
                                                  hsa_signal_condition_t condition,
                                                  hsa_signal_value_t value,
                                                  hsa_amd_signal_handler handler, void* argument) {
  SIM_CALL(hsa_amd_signal_async_handler);
  if (handler == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  if (signal.handle == 0) return HSA_STATUS_ERROR_INVALID_SIGNAL;
  sim::handlers().add(
      {[=] { return sim::satisfied(sim::value_of(signal).load(), condition, value); },
       [=] { return handler(sim::value_of(signal).load(), argument); }});
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_async_function(void (*callback)(void*), void* argument) {
  SIM_CALL(hsa_amd_async_function);
  if (callback == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  sim::handlers().add({[] { return true; },
                       [=] {
                         callback(argument);
                         return false;
                       }});
  return HSA_STATUS_SUCCESS;
}
