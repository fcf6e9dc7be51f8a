// Locks under threads of different priority: one that waits must let the holder run.
#include "shim/base/spin_lock.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <atomic>
#include <thread>

#include "shim/base/sleep_lock.h"
#include "shim/base/static_spin_lock.h"

namespace fracgpu {
namespace {

bool stay_on_this_core() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(sched_getcpu()), &one);
  return pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0;
}

template <typename Lock>
class SpinLockTest : public testing::Test {};
using Locks = testing::Types<SpinLock, StaticSpinLock, SleepLock>;
TYPED_TEST_SUITE(SpinLockTest, Locks);

// On one core the holder runs only while the other one sleeps. Where the kernel takes the core from
// a real-time thread after most of a second, that would be much too late as well.
TYPED_TEST(SpinLockTest, LetsAHolderOfLowerPriorityRun) {
  static constinit TypeParam lock;
  std::atomic<bool> may_run{true}, held{false}, waits{false};
  long waited_ms = 0;
  std::thread both([&] {
    if (!stay_on_this_core()) {
      may_run = false;
      return;
    }
    std::thread urgent([&] {
      constexpr timespec kMoment = {0, 1'000'000};
      const sched_param priority = {.sched_priority = 1};
      if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority) != 0) may_run = false;
      while (!held) nanosleep(&kMoment, nullptr);
      timespec before, after;
      clock_gettime(CLOCK_MONOTONIC, &before);
      waits = true;
      { Locked<TypeParam> locked(lock); }
      clock_gettime(CLOCK_MONOTONIC, &after);
      waited_ms =
          (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1'000'000;
    });
    {
      Locked<TypeParam> locked(lock);
      held = true;
      while (!waits) {
      }
    }
    urgent.join();
  });
  both.join();
  if (!may_run) GTEST_SKIP() << "no thread may have a real-time priority here";
  EXPECT_LT(waited_ms, 500);
}

}  // namespace
}  // namespace fracgpu
