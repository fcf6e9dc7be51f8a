// The process as a member of its tenant: its faults, and what a forked child makes of its state.
#include "shim/process/process.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "shim/base/sleep_lock.h"
#include "shim/base/static_spin_lock.h"
#include "shim/process/first_fault.h"
#include "tests/unit/child.h"
#include "tests/unit/refused_calls.h"
#include "tests/unit/scratch_tenant.h"

namespace fracgpu {
namespace {

// Under a limit that names devices by their index, which nobody here can tell of any.
void set_limit(const ScratchTenant& tenant) {
  setenv("FRACGPU_MEMORY_LIMIT", "0=1GiB", 1);
  setenv("FRACGPU_TENANT", tenant.name(), 1);
}

TEST(ProcessTest, TheFirstFaultStays) {
  ScratchTenant tenant;
  EXPECT_EQ(status_of_child([&] {
              set_limit(tenant);
              Process* const process = Process::self();
              if (process == nullptr || !process->fault().empty()) return 1;
              if (process->index_of_device(0, "", 0) != Process::kFault) return 2;
              const std::string first = process->fault().c_str();
              if (first.find("which device this is") == first.npos) return 3;
              if (process->index_of_device(1, "GPU-1", 0) != Process::kFault) return 4;
              return first == process->fault().view() ? 0 : 5;
            }),
            0);
}

// A program that opens and closes many files may have none left just when it first allocates.
TEST(ProcessTest, LackOfADescriptorIsNoFaultForGood) {
  ScratchTenant tenant;
  EXPECT_EQ(status_of_child([&] {
              setenv("FRACGPU_MEMORY_LIMIT", "1GiB", 1);
              setenv("FRACGPU_TENANT", tenant.name(), 1);
              Process* const process = Process::self();
              const rlimit few = {3, 1024}, many = {1024, 1024};
              for (const char* const key : {"GPU-1", "GPU-2"}) {
                const int slot = key[4] - '0';
                if (setrlimit(RLIMIT_NOFILE, &few) != 0) return 1;
                if (process->index_of_device(slot, key, 1 << 30) != Process::kFault) return 2;
                if (!process->lacked_descriptor() || !process->fault().empty()) return 3;
                if (setrlimit(RLIMIT_NOFILE, &many) != 0) return 4;
                if (process->index_of_device(slot, key, 1 << 30) < 0) return 5;
              }
              return 0;
            }),
            0);
}

// The kernel refuses to wipe pages in forked children from now on, as one before Linux 4.14 does.
bool refuse_wiping() {
  return refuse_calls(SYS_madvise, BPF_JEQ, MADV_WIPEONFORK, EINVAL);
}

TEST(ProcessTest, IsMadeAnewInAForkedChild) {
  ScratchTenant tenant;
  EXPECT_EQ(status_of_child([&] {
              set_limit(tenant);
              Process* const parent = Process::self();
              if (parent == nullptr || !parent->join()) return 1;
              return status_of_child([&] {
                if (Process::known() != nullptr) return 2;
                Process* const child = Process::self();
                if (child == nullptr || child == parent || child->has_joined()) return 3;
                return child->join() ? 0 : 4;
              });
            }),
            0);
}

// As in a sandbox such as gVisor's.
TEST(ProcessTest, IsMadeAnewWhereTheKernelWipesNothing) {
  ScratchTenant tenant;
  const int status = status_of_child([&] {
    set_limit(tenant);
    if (!refuse_wiping()) return 77;
    fork_page = nullptr;  // another test may have had one, before the kernel refused
    Process* const parent = Process::self();
    if (parent == nullptr || !parent->fault().empty() || !parent->join()) return 1;
    const uint32_t generation = fork_generation();
    const int of_child = status_of_child([&] {
      if (Process::known() != nullptr) return 2;
      if (fork_generation() == generation) return 3;
      Process* const child = Process::self();
      if (child == nullptr || child == parent || child->has_joined() || !child->join()) return 4;
      // And so on.
      return status_of_child([] { return Process::known() == nullptr ? 0 : 5; });
    });
    return Process::known() == parent && fork_generation() == generation ? of_child : 6;
  });
  if (status == 77) GTEST_SKIP() << "no filter of system calls can be had here";
  EXPECT_EQ(status, 0);
}

// A thread holds a lock while another forks: it will never give it back in the child.
template <typename Lock>
class StaticLockTest : public testing::Test {};
using StaticLocks = testing::Types<StaticSpinLock, SleepLock>;
TYPED_TEST_SUITE(StaticLockTest, StaticLocks);

TYPED_TEST(StaticLockTest, IsFreeInAForkedChild) {
  static constinit TypeParam lock;
  std::atomic<bool> held{false}, done{false};
  std::thread holder([&] {
    Locked<TypeParam> locked(lock);
    held = true;
    while (!done) sched_yield();
  });
  while (!held) sched_yield();
  EXPECT_EQ(status_of_child([] {
              for (int i = 0; i < 2; ++i) Locked<TypeParam> locked(lock);
              // Nor does it matter to a child of the child.
              Locked<TypeParam> locked(lock);
              return status_of_child([] { return Locked<TypeParam>(lock), 0; });
            }),
            0);
  done = true;
  holder.join();
}

TYPED_TEST(StaticLockTest, LetsOneThreadInAtATime) {
  static constinit TypeParam lock;
  constexpr int kThreads = 4, kRounds = 10000;
  int count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        Locked<TypeParam> locked(lock);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, kThreads * kRounds);
}

// Threads that find different faults at once, and others that look meanwhile: everybody sees the
// whole of one.
TEST(FirstFaultTest, IsTheSameForEveryThread) {
  constexpr int kThreads = 4, kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    FirstFault fault;
    EXPECT_TRUE(fault.get().empty());
    std::vector<std::string> seen(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        Message why;
        why.assign(std::string(100 * (i + 1), static_cast<char>('a' + i)));
        if (i % 2 == 0) fault.set(why);
        while (fault.get().empty()) sched_yield();
        seen[i] = fault.get().view();
        fault.set(why);
      });
    }
    for (std::thread& thread : threads) thread.join();
    const std::string first(fault.get().view());
    ASSERT_EQ(first, std::string(first.size(), first[0]));
    for (const std::string& one : seen) ASSERT_EQ(one, first);
  }
}

}  // namespace
}  // namespace fracgpu
