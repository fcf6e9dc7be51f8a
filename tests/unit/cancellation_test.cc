// Threads that are cancelled while they are in a hook: what they were about to do is done, nothing
// of ours stays locked, and they end at the program's own next cancellation point.
#include <gtest/gtest.h>
#include <pthread.h>

#include <thread>

#include "shim/base/no_cancellation.h"
#include "shim/base/report.h"
#include "shim/base/sleep_lock.h"
#include "shim/base/spin_lock.h"
#include "shim/config/identity.h"
#include "shim/ledger/grow_lock.h"
#include "shim/ledger/ledger.h"
#include "tests/unit/child.h"
#include "tests/unit/scratch_tenant.h"

namespace fracgpu {
namespace {

// Runs `body` in a thread that has been asked to end before. False where it ended within.
template <typename Body>
bool lives_through(Body body) {
  bool reached = false;
  std::thread thread([&] {
    pthread_cancel(pthread_self());
    body();
    reached = true;
    pthread_testcancel();
    ADD_FAILURE() << "what was pending is lost";
  });
  thread.join();
  return reached;
}

TEST(CancellationTest, EndsNoThreadInTheLedger) {
  ScratchTenant tenant;
  Ledger ledger;
  Message error;
  int device = -1;
  EXPECT_TRUE(lives_through([&] {
    if (!ledger.join(tenant.name(), ProcessIdentity::of_self(), nullptr, error)) return;
    device = ledger.device("GPU-test", 1 << 20, 1 << 20, error);
  }));
  ASSERT_GE(device, 0) << error.view();
  EXPECT_TRUE(lives_through([&] {
    Refusal refusal;
    EXPECT_TRUE(ledger.reserve(device, 10, refusal));
    EXPECT_FALSE(ledger.reserve(device, 1 << 20, refusal));
    ledger.charge_taken(device, 1 << 20);
    ledger.release(device, 1 << 20);
    ledger.record(device, "cuMemAlloc", refusal);
    EXPECT_TRUE(ledger.any_alive());
    EXPECT_FALSE(ledger.reap_dead());
    ledger.sweep();
  }));
  LedgerFile file;
  ASSERT_EQ(file.open_existing(tenant.name(), LedgerFile::Access::write, error),
            LedgerFile::Result::ok);
  EXPECT_TRUE(GrowLock(file, GrowLock::LockTimeout::none)) << "a cancelled thread has it";
}

TEST(CancellationTest, EndsNoThreadThatReports) {
  // What the process remembers of its stderr is a child's.
  EXPECT_EQ(status_of_child([] {
              return lives_through([] { report(Level::error, "said by a cancelled thread"); }) ? 0
                                                                                               : 1;
            }),
            0);
}

// In a vendor's function that we call, say.
TEST(CancellationTest, EndsNoThreadThatHasASleepLock) {
  SleepLock outer, inner;
  EXPECT_TRUE(lives_through([&] {
    const Locked<SleepLock> first(outer);
    {
      const Locked<SleepLock> second(inner);
      pthread_testcancel();
    }
    pthread_testcancel();
  }));
  const Locked<SleepLock> first(outer), second(inner);
}

TEST(CancellationTest, LeavesTheThreadsOwnStateAlone) {
  int state = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  {
    SleepLock lock;
    const NoCancellation scope;
    const Locked<SleepLock> locked(lock);
  }
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
  EXPECT_EQ(state, PTHREAD_CANCEL_DISABLE);
}

}  // namespace
}  // namespace fracgpu
