// Ledgers that nobody needs any more go away, and none that somebody lives in, holds memory by, or
// may want to read yet.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "shim/ledger/ledger.h"
#include "tests/unit/scratch_tenant.h"

namespace fracgpu {
namespace {

constexpr char kKey[] = "GPU-test";
constexpr uint64_t kCap = 1 << 30;

uint64_t now_s() {
  return static_cast<uint64_t>(time(nullptr));
}
// When nothing of now is remembered any more.
uint64_t much_later_s() {
  return now_s() + 3600;
}

// A member; `pid` makes it another process than those of other numbers.
struct Member {
  explicit Member(const std::string& tenant, uint32_t pid = 1) {
    ProcessIdentity self = ProcessIdentity::of_self();
    self.host_pid += pid;
    self.pid += pid;
    Message error;
    EXPECT_TRUE(ledger.join(tenant.c_str(), self, nullptr, error)) << error.view();
    device = ledger.device(kKey, kCap, kCap, error);
    EXPECT_GE(device, 0) << error.view();
  }
  void hold(uint64_t units) {
    Refusal refusal;
    EXPECT_TRUE(ledger.reserve(device, units, refusal));
  }
  void be_refused() {
    Refusal refusal;
    EXPECT_FALSE(ledger.reserve(device, 2 * kCap, refusal));
    ledger.record(device, "cuMemAlloc", refusal);
  }
  Ledger ledger;
  int device = -1;
};

class LedgerRemovalTest : public testing::Test {
 protected:
  bool exists() const { return access(tenant_.path().c_str(), F_OK) == 0; }
  bool remove_ended(Ledger::ReleaseProbe probe = nullptr) const {
    return Ledger::remove_ended(tenant_.name(), probe, much_later_s());
  }
  ScratchTenant tenant_;
};

TEST_F(LedgerRemovalTest, TheLastToLeaveRemovesIt) {
  std::optional<Member> first(std::in_place, tenant_.name(), 1),
      last(std::in_place, tenant_.name(), 2);
  first->hold(1000);
  first->ledger.release(first->device, 1000);
  first->ledger.leave_for_good(much_later_s());
  EXPECT_TRUE(exists()) << "another one lives in it";
  first.reset();
  last->ledger.leave_for_good(much_later_s());
  EXPECT_FALSE(exists());
}

TEST_F(LedgerRemovalTest, WhoLeftForGoodIsGrantedNothingMore) {
  Member member(tenant_.name());
  member.hold(1000);
  member.ledger.release(member.device, 1000);
  member.ledger.leave_for_good(much_later_s());
  Refusal refusal;
  EXPECT_FALSE(member.ledger.reserve(member.device, 1, refusal))
      << "nobody would count it: the file is gone";
}

TEST_F(LedgerRemovalTest, WhatIsStillHeldKeepsIt) {
  Member member(tenant_.name());
  member.hold(1000);
  member.ledger.leave_for_good(much_later_s());
  EXPECT_TRUE(exists()) << "the driver releases it only when the process is gone";
}

TEST_F(LedgerRemovalTest, WhatTheDeadHoldKeepsItFromTheLastToLeave) {
  std::optional<Member> dead(std::in_place, tenant_.name(), 1);
  Member last(tenant_.name(), 2);
  dead->hold(1000);
  dead.reset();
  last.ledger.leave_for_good(much_later_s());
  EXPECT_TRUE(exists());
}

TEST_F(LedgerRemovalTest, ANameThatWasChosenIsKeptForItsNextProcess) {
  Member member(tenant_.name());
  member.ledger.leave_for_good(now_s());
  EXPECT_TRUE(exists());
}

TEST_F(LedgerRemovalTest, WhatWasMadeForAChosenNameIsKeptForWhoWillJoin) {
  LedgerFile file;
  Message error;
  ASSERT_EQ(file.open_or_create(tenant_.name(), error), LedgerFile::Result::ok);
  EXPECT_FALSE(Ledger::remove_ended(tenant_.name(), nullptr, now_s()));
  EXPECT_TRUE(remove_ended());
}

TEST_F(LedgerRemovalTest, ANameThatWasMadeUpIsNotKept) {
  const ScratchTenant tree("tree-");
  Member member(tree.name());
  member.ledger.leave_for_good(now_s());
  EXPECT_NE(access(tree.path().c_str(), F_OK), 0);
}

TEST_F(LedgerRemovalTest, ThatOfAClaimIsLeftToWhoMadeIt) {
  const ScratchTenant claim("claim-");
  std::optional<Member> member(std::in_place, claim.name());
  member->ledger.leave_for_good(much_later_s());
  EXPECT_EQ(access(claim.path().c_str(), F_OK), 0);
  member.reset();
  EXPECT_FALSE(Ledger::remove_ended(claim.name(), nullptr, much_later_s()));
  EXPECT_EQ(access(claim.path().c_str(), F_OK), 0);
}

TEST_F(LedgerRemovalTest, ARefusalMayBeExplainedForAWhile) {
  const ScratchTenant tree("tree-");
  std::optional<Member> member(std::in_place, tree.name());
  member->be_refused();
  member->ledger.leave_for_good(now_s());
  EXPECT_EQ(access(tree.path().c_str(), F_OK), 0);
  member.reset();
  EXPECT_FALSE(Ledger::remove_ended(tree.name(), nullptr, now_s()));
  EXPECT_TRUE(Ledger::remove_ended(tree.name(), nullptr, much_later_s()));
}

TEST_F(LedgerRemovalTest, TheEndedIsRemovedAndNobodyElse) {
  std::optional<Member> member(std::in_place, tenant_.name());
  member->hold(1000);
  EXPECT_FALSE(remove_ended()) << "its process lives";
  member.reset();
  EXPECT_TRUE(remove_ended());
  EXPECT_FALSE(exists());
  EXPECT_FALSE(remove_ended()) << "it is not there";
}

TEST_F(LedgerRemovalTest, WhatTheDriverHoldsOfTheDeadKeepsIt) {
  if (ProcessIdentity::of_self().host_pid == 0) {
    // In a PID namespace of its own a process does not know by which PID the driver knows it.
    GTEST_SKIP() << "in a PID namespace of its own";
  }
  std::optional<Member> member(std::in_place, tenant_.name());
  member->hold(1000);
  member.reset();
  using Release = Ledger::DriverRelease;
  EXPECT_FALSE(remove_ended([](const DeadProcess&, const char*) { return Release::held; }));
  EXPECT_TRUE(exists());
  EXPECT_TRUE(remove_ended([](const DeadProcess&, const char*) { return Release::released; }));
}

TEST_F(LedgerRemovalTest, NobodyIsWaitedFor) {
  std::optional<Member> member(std::in_place, tenant_.name());
  LedgerFile file;
  Message error;
  ASSERT_EQ(file.open_existing(tenant_.name(), LedgerFile::Access::write, error),
            LedgerFile::Result::ok);
  const GrowLock lock(file);
  ASSERT_TRUE(lock);
  const auto before = std::chrono::steady_clock::now();
  member->ledger.leave_for_good(much_later_s());
  member.reset();
  EXPECT_FALSE(remove_ended()) << "who has the lock may be about to join";
  EXPECT_TRUE(exists());
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(1));
}

TEST_F(LedgerRemovalTest, WhoMakesAFileSweepsWhatEnded) {
  const ScratchTenant ended("tree-"), living("tree-"), other_file("tree-"), recent;
  { Member(ended.name()).hold(1000); }
  { Member(recent.name()).hold(1000); }
  Member alive(living.name());
  close(open(other_file.path().c_str(), O_CREAT | O_WRONLY, 0600));
  Member newcomer(tenant_.name());
  EXPECT_TRUE(newcomer.ledger.has_made_file());
  // A sweep looks at some of the files only; other tests of this machine may have many.
  for (int i = 0; i < 1000 && access(ended.path().c_str(), F_OK) == 0; ++i) newcomer.ledger.sweep();
  EXPECT_NE(access(ended.path().c_str(), F_OK), 0);
  EXPECT_EQ(access(living.path().c_str(), F_OK), 0);
  EXPECT_EQ(access(recent.path().c_str(), F_OK), 0);
  EXPECT_EQ(access(other_file.path().c_str(), F_OK), 0) << "it is no ledger";
  EXPECT_TRUE(exists());
}

// Processes of one tenant come and go as fast as they can, while others remove its file as fast as
// they can: whoever has a slot is in the file that is at the path, and the cap holds among them.
TEST_F(LedgerRemovalTest, JoiningAndRemovingMeet) {
  constexpr int kProcesses = 4, kRounds = 300;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      for (int round = 0; round < kRounds; ++round) {
        Ledger ledger;
        Message error;
        if (!ledger.join(tenant_.name(), ProcessIdentity::of_self(), nullptr, error)) {
          dprintf(STDERR_FILENO, "%s\n", error.c_str());
          _exit(1);
        }
        const int device = ledger.device(kKey, kCap, kCap, error);
        if (device < 0) _exit(2);
        struct stat status;
        Refusal refusal;
        if (ledger.reserve(device, 1 + layout::units_for(kCap) / 2, refusal)) {
          // More than half, so nobody else has as much; and the file stays while it is held.
          if (stat(tenant_.path().c_str(), &status) != 0) _exit(3);
          if (ledger.held(device) > layout::units_for(kCap)) _exit(4);
          ledger.release(device, 1 + layout::units_for(kCap) / 2);
        } else if (!refusal.fault.empty()) {
          _exit(5);
        }
        ledger.leave_for_good(much_later_s());
      }
      _exit(0);
    }
    children.push_back(child);
  }
  const pid_t sweeper = fork();
  if (sweeper == 0) {
    for (;;) Ledger::remove_ended(tenant_.name(), nullptr, much_later_s());
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "exit status " << WEXITSTATUS(status);
  }
  kill(sweeper, SIGKILL);
  waitpid(sweeper, nullptr, 0);
}

}  // namespace
}  // namespace fracgpu
