// A process that is checkpointed gives its device memory back: others of its tenant may have it,
// and nobody gets above the cap when it comes back.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

constexpr uint64_t kContext = 256 * kMiB;

class CheckpointTest : public Rig {
 protected:
  CheckpointTest() : Rig("a100-40gb", 256) {}
  void SetUp() override {
    if (thread_sanitized()) GTEST_SKIP() << "python is not instrumented";
  }

  static Outcome order(const Program& target, const std::string& steps,
                       const Environment& environment) {
    std::vector<std::string> args = {"python3", TEST_CHECKPOINT_CLIENT,
                                     std::to_string(target.pid())};
    for (const std::string& step : words(steps)) args.push_back(step);
    return run(args, environment);
  }
  // By a process of the tenant.
  Outcome order(const Program& target, const std::string& steps) const {
    return order(target, steps, capped("8GiB"));
  }
  static void expect_done(const Outcome& outcome, const char* step) {
    EXPECT_EQ(field(line_of(outcome.out, step), "rc="), 0) << outcome.out << outcome.err;
  }

  void expect_checkpointed(const Program& target) {
    expect_done(order(target, "lock checkpoint"), "checkpoint");
    EXPECT_EQ(node_->used_by_pid(0, target.pid()), 0u);
    EXPECT_EQ(ledger().held(uuid(), target.pid()), 0u) << "the driver has its memory back";
  }
};

// A stopped process may hold it.
class GrowLockOfAnother {
 public:
  explicit GrowLockOfAnother(const std::string& tenant)
      : fd_(open((layout::kFilePrefix + tenant).c_str(), O_RDWR | O_CLOEXEC)) {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_start = layout::kGrowLock;
    lock.l_len = 1;
    EXPECT_EQ(fcntl(fd_, F_OFD_SETLK, &lock), 0);
  }
  ~GrowLockOfAnother() { close(fd_); }

 private:
  int fd_;
};

TEST_F(CheckpointTest, OthersMayHaveTheMemoryUntilItComesBack) {
  auto target = start_client("8GiB", words("init retain alloc 5GiB wait alloc 1GiB wait"));
  target->read_until_ready();
  expect_checkpointed(*target);

  auto other = start_client("8GiB", words("init retain alloc 6GiB wait free 0 wait"));
  EXPECT_EQ(field(other->read_until_ready().back(), "rc="), 0);
  const Outcome refused = order(*target, "restore state");
  EXPECT_EQ(field(line_of(refused.out, "restore"), "rc="), 2) << refused.out;
  EXPECT_EQ(field(line_of(refused.out, "state"), "state="), 2) << "it stays checkpointed";
  EXPECT_NE(refused.err.find("cuCheckpointProcessRestore refused on "), refused.err.npos)
      << refused.err;
  EXPECT_NE(refused.err.find(" had 5.3 GiB, in use 6.3 GiB of cap 8.0 GiB"), refused.err.npos)
      << refused.err;
  EXPECT_EQ(ledger().total_held(uuid()), 6 * kGiB + kContext);

  other->go_on();
  other->read_until_ready();
  const Outcome restored = order(*target, "restore unlock");
  expect_done(restored, "restore");
  EXPECT_EQ(restored.err, "");
  expect_books_agree(target->pid(), "restored");
  EXPECT_EQ(ledger().held(uuid(), target->pid()), 5 * kGiB + kContext);
  target->go_on();
  EXPECT_EQ(field(target->read_until_ready().back(), "rc="), 0) << "it goes on allocating";
  expect_books_agree(target->pid(), "after an allocation");
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 8 * kGiB);
}

TEST_F(CheckpointTest, UnspentLeasesAreNoReasonToRefuse) {
  auto target = start_client("8GiB", words("init retain alloc 5GiB wait"));
  target->read_until_ready();
  expect_checkpointed(*target);
  // The lease of the other one grew into the room that is needed.
  auto other = start_client("8GiB", words("init retain alloc 2500MiB wait"));
  other->read_until_ready();
  expect_done(order(*target, "restore unlock"), "restore");
  EXPECT_EQ(ledger().total_held(uuid()), node_->tenant_used(0, tenant_));
}

TEST_F(CheckpointTest, WhatTheDriverRefusesStaysCheckpointed) {
  auto target = start_client("8GiB", words("init retain alloc 5GiB wait"));
  target->read_until_ready();
  expect_checkpointed(*target);
  const Outcome failed =
      order(*target, "restore",
            capped("8GiB") + Environment{{"FRACGPU_SIM_FAIL", "cuCheckpointProcessRestore:1=999"}});
  EXPECT_EQ(field(line_of(failed.out, "restore"), "rc="), 999) << failed.out;
  EXPECT_EQ(ledger().total_held(uuid()), 0u);
  const Outcome unlocked = order(*target, "checkpoint");
  EXPECT_EQ(field(line_of(unlocked.out, "checkpoint"), "rc="), 401) << "it is already";
  EXPECT_EQ(ledger().total_held(uuid()), 0u);
}

TEST_F(CheckpointTest, ARestoreOfARunningProcessLeavesItsCharge) {
  auto target = start_client("8GiB", words("init retain alloc 5GiB wait"));
  target->read_until_ready();
  const Outcome failed = order(*target, "restore");
  EXPECT_EQ(field(line_of(failed.out, "restore"), "rc="), 401) << failed.out;
  expect_books_agree(target->pid(), "it was not checkpointed");
}

// CUDA 13.4 can leave the memory on the device until another call completes the checkpoint.
TEST_F(CheckpointTest, WithAnArgumentItStaysCharged) {
  auto target = start_client("8GiB", words("init retain alloc 5GiB wait"));
  target->read_until_ready();
  expect_done(order(*target, "lock checkpoint:1"), "checkpoint");
  EXPECT_EQ(ledger().total_held(uuid()), 5 * kGiB + kContext);
  expect_done(order(*target, "restore unlock"), "restore");
  expect_books_agree(target->pid(), "restored");
}

TEST_F(CheckpointTest, WithoutTheLedgersLockNothingIsRestored) {
  auto target = start_client("8GiB", words("init retain alloc 5GiB wait"));
  target->read_until_ready();
  expect_checkpointed(*target);
  {
    const GrowLockOfAnother lock(tenant_);
    const Outcome refused = order(*target, "restore state");
    EXPECT_EQ(field(line_of(refused.out, "restore"), "rc="), 2) << refused.out;
    EXPECT_EQ(field(line_of(refused.out, "state"), "state="), 2) << "it stays checkpointed";
    EXPECT_NE(refused.err.find("cuCheckpointProcessRestore refused: the ledger "), refused.err.npos)
        << refused.err;
  }
  expect_done(order(*target, "restore unlock"), "restore");
  expect_books_agree(target->pid(), "restored");
}

TEST_F(CheckpointTest, ByAnotherTenantItStaysCharged) {
  const Environment other = {{"FRACGPU_TENANT", tenant_ + "-other"},
                             {sim::kTenantVariable, tenant_ + "-other"}};
  auto target = start_client("8GiB", words("init retain alloc 5GiB wait"));
  target->read_until_ready();
  expect_done(order(*target, "lock checkpoint", capped("8GiB") + other), "checkpoint");
  EXPECT_EQ(ledger().total_held(uuid()), 5 * kGiB + kContext);
  expect_done(order(*target, "restore unlock"), "restore");
  expect_books_agree(target->pid(), "restored");
}

// Somebody without the library restores it: the process itself finds out when it looks next.
TEST_F(CheckpointTest, ARestoreFromOutsideIsSeenAtTheNextReading) {
  auto target =
      start_client("8GiB", words("init retain alloc 5GiB wait alloc 30GiB alloc 1GiB wait"));
  target->read_until_ready();
  expect_checkpointed(*target);
  expect_done(order(*target, "restore unlock", bare()), "unlock");
  target->go_on();
  target->read_until_ready();
  expect_books_agree(target->pid(), "after a refusal");
  auto other = start_client("8GiB", words("init retain alloc 6GiB wait"));
  EXPECT_EQ(field(other->read_until_ready().back(), "rc="), 2);
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 8 * kGiB);
}

TEST_F(CheckpointTest, WhoDiesCheckpointedHoldsNothing) {
  auto target = start_client("8GiB", words("init retain alloc 5GiB wait"));
  target->read_until_ready();
  expect_checkpointed(*target);
  target->kill(SIGKILL);
  target->finish();
  auto next = start_client("8GiB", words("init retain alloc 7GiB wait"));
  EXPECT_EQ(field(next->read_until_ready().back(), "rc="), 0);
  EXPECT_EQ(ledger().total_held(uuid()), 7 * kGiB + kContext);
}

}  // namespace
}  // namespace fracgpu::test
