// The thread that consumes the queues; see queues.h.
#include "queues.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "user_memory.h"

namespace kfd {

uint64_t gpu_clock() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return (static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec)) /
         10;
}

bool traces() {
  static const bool answer = std::getenv("SIMULATED_KFD_TRACE") != nullptr;
  return answer;
}

void Queues::report_to(char* where, size_t bytes) {
  const std::lock_guard guard(mutex_);
  blocked_ = where;
  blocked_bytes_ = bytes;
}

void Queues::add(const Queue& queue) {
  const std::lock_guard guard(mutex_);
  queues_.push_back(queue);
  if (running_) return;
  // The program's own threads handle its signals.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  running_ = pthread_create(&thread, nullptr, run, this) == 0;
  if (running_) pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

bool Queues::remove(uint32_t id) {
  const std::lock_guard guard(mutex_);
  return queues_.remove_if([&](const Queue& queue) { return queue.id == id; }) != 0;
}

bool Queues::update(uint32_t id, uint64_t ring, uint64_t bytes) {
  const std::lock_guard guard(mutex_);
  for (Queue& queue : queues_) {
    if (queue.id != id) continue;
    queue.ring = ring;
    queue.ring_bytes = bytes;
    return true;
  }
  return false;
}

void Queues::forget_memory(uint64_t start, uint64_t bytes) {
  const std::lock_guard guard(mutex_);
  const auto within = [&](uint64_t address) { return address - start < bytes; };
  for (Queue& queue : queues_) {
    if (within(queue.ring) || within(queue.read_pointer) || within(queue.write_pointer)) {
      queue.stopped = true;
    }
  }
}

Step Queues::step(Queue& queue) {
  if (queue.stopped || queue.ring_bytes == 0) return Step::kEmpty;
  Why why;
  const Step done = queue.aql ? step_aql(queue, *events_, why) : step_sdma(queue, *events_, why);
  if (traces() && done == Step::kDone) {
    std::fprintf(stderr, "simulated KFD: queue %u: %s packet %#x is done\n", queue.id,
                 queue.aql ? "HSA" : "copy", queue.traced);
  }
  if (done == Step::kBroken) {
    std::fprintf(stderr, "simulated KFD: queue %u stops: %s\n", queue.id, why.text);
    queue.stopped = true;
  }
  if (done == Step::kBlocked && blocked_ != nullptr) {
    std::snprintf(blocked_, blocked_bytes_, "queue %u waits for %s", queue.id, why.text);
  }
  return done;
}

bool Queues::step_all() {
  constexpr int kInARow = 64;
  bool any = false, blocked = false;
  const std::lock_guard guard(mutex_);
  for (Queue& queue : queues_) {
    Step done = Step::kDone;
    for (int i = 0; i < kInARow && done == Step::kDone; ++i) {
      done = step(queue);
      any |= done == Step::kDone;
    }
    blocked |= done == Step::kBlocked;
  }
  if (!blocked && blocked_ != nullptr) *blocked_ = '\0';
  return any;
}

// A real device sees the store to a doorbell. Here the thread polls, less often while nothing
// happens.
void* Queues::run(void* self) {
  constexpr int kYields = 20, kShortPauses = 400;
  for (int idle = 0;;) {
    idle = static_cast<Queues*>(self)->step_all() ? 0 : std::min(idle + 1, kShortPauses);
    if (idle < kYields) {
      sched_yield();
    } else {
      const timespec pause{0, idle < kShortPauses ? 50'000 : 1'000'000};
      nanosleep(&pause, nullptr);
    }
  }
  return nullptr;
}

}  // namespace kfd
