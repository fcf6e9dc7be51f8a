// Threads that fork while the library holds what no child may get: a lock of the ledger, a slot.
#include "shim/base/unforked.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "shim/base/clock.h"
#include "shim/ledger/grow_lock.h"
#include "shim/ledger/ledger.h"
#include "tests/unit/before_advice.h"
#include "tests/unit/child.h"
#include "tests/unit/scratch_tenant.h"

namespace fracgpu {
namespace {

constexpr uint64_t kLongest_ms = 30'000;

template <typename Condition>
bool comes_true(Condition condition) {
  const uint64_t end = coarse_now_ms() + kLongest_ms;
  while (!condition()) {
    if (coarse_now_ms() > end) return false;
    sched_yield();
  }
  return true;
}

// How many of this process's descriptors are of the file.
int descriptors_of(const std::string& path) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    count += std::filesystem::read_symlink(entry.path(), gone) == path ? 1 : 0;
  }
  return count;
}

TEST(UnforkedTest, ForkWaitsForWhoHoldsTheLedgersLock) {
  ScratchTenant tenant;
  LedgerFile file;
  Message error;
  ASSERT_EQ(file.open_or_create(tenant.name(), error), LedgerFile::Result::ok) << error.view();
  std::atomic<bool> forked{false};
  int got = -1;
  std::thread forking;
  {
    const GrowLock lock(file);
    ASSERT_TRUE(lock);
    forking = std::thread([&] {
      got = status_of_child([&] {
        forked = true;
        return descriptors_of(tenant.path());
      });
      forked = true;
    });
    EXPECT_TRUE(comes_true([&] { return forked || Unforked::is_awaited(); }));
    EXPECT_FALSE(forked) << "a child has the lock";
  }
  forking.join();
  EXPECT_EQ(got, 0) << "descriptors of the ledger in a child";
  EXPECT_FALSE(Unforked::is_awaited());
}

// Who waits for the lock has no lock yet, but is about to get one through the same descriptor.
TEST(UnforkedTest, ForkDoesNotWaitForWhoWaitsForTheLock) {
  ScratchTenant tenant;
  LedgerFile file, other;
  Message error;
  ASSERT_EQ(file.open_or_create(tenant.name(), error), LedgerFile::Result::ok) << error.view();
  std::atomic<bool> waits{false}, done{false}, held{false};
  std::thread waiting;
  int got = -1;
  {
    // As another process would.
    const int fd = file.reopen(error);
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = layout::kGrowLock;
    lock.l_len = 1;
    ASSERT_EQ(fcntl(fd, F_OFD_SETLK, &lock), 0);
    waiting = std::thread([&] {
      waits = true;
      const GrowLock mine(file);
      held = static_cast<bool>(mine);
      comes_true([&] { return done.load(); });
    });
    ASSERT_TRUE(comes_true([&] { return waits && descriptors_of(tenant.path()) == 2; }));
    const uint64_t begun = coarse_now_ms();
    got = status_of_child([&] { return descriptors_of(tenant.path()); });
    EXPECT_LT(coarse_now_ms() - begun, 900u) << "it waited for as long as it would for the stopped";
    close(fd);
  }
  EXPECT_EQ(got, 1) << "but for that of this test, no descriptor is in a child";
  done = true;
  waiting.join();
  EXPECT_TRUE(held);
}

TEST(UnforkedTest, ForkInASectionOfItsOwnDoesNotWait) {
  const Unforked outer;
  const uint64_t begun = coarse_now_ms();
  EXPECT_EQ(status_of_child([] {
              { const Unforked inner; }
              // A grandchild waits for nobody either.
              return status_of_child([] { return 0; });
            }),
            0);
  EXPECT_LT(coarse_now_ms() - begun, 900u);
}

// A thread forks just before the advice that keeps a mapping from children.
TEST(UnforkedTest, ChildDoesNotKeepTheSlotOfItsDeadParent) {
  ScratchTenant tenant;
  auto* const child = static_cast<std::atomic<pid_t>*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(child, MAP_FAILED);
  const int status = status_of_child([&] {
    std::atomic<bool> begin{false};
    std::thread forking([&] {
      comes_true([&] { return begin.load(); });
      const pid_t pid = fork();
      if (pid != 0) {
        *child = pid;
        return;
      }
      alarm(60);
      for (;;) pause();
    });
    // The first one is of the whole ledger's mapping, the second one of the slot's.
    int advices = 0;
    before_advice = [&] {
      if (++advices != 2) return;
      begin = true;
      comes_true([&] { return *child != 0 || Unforked::is_awaited(); });
    };
    Ledger ledger;
    Message error;
    if (!ledger.join(tenant.name(), ProcessIdentity::of_self(), nullptr, error)) return 1;
    forking.join();
    return *child > 0 && LedgerFile::is_lived_in(tenant.name()) ? 0 : 2;
  });
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(LedgerFile::is_lived_in(tenant.name())) << "its child lives";
  EXPECT_EQ(kill(*child, SIGKILL), 0);
  munmap(child, 4096);
}

}  // namespace
}  // namespace fracgpu
