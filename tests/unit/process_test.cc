// The process as a member of its tenant: its faults, and what a forked child makes of its state.
#include "shim/process/process.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <string>
#include <thread>
#include <vector>

#include "shim/process/first_fault.h"
#include "tests/unit/child.h"
#include "tests/unit/scratch_tenant.h"

namespace fracgpu {
namespace {

// Under a limit that names devices by their index, which nobody here can tell of any.
void set_limit(const ScratchTenant& tenant) {
  setenv("FRACGPU_MEMORY_LIMIT", "0=1GiB", 1);
  setenv("FRACGPU_TENANT", tenant.name(), 1);
}

TEST(Process, TheFirstFaultStays) {
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

// Threads that find different faults at once, and others that look meanwhile: everybody sees the
// whole of one.
TEST(FirstFault, IsTheSameForEveryThread) {
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
