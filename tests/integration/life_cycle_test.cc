// Processes come and go: killed, forked, replaced, daemonised. What they held is free again, and
// what the living hold is not.
#include <signal.h>
#include <unistd.h>

#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

class ProcessLifeTest : public Rig {
 protected:
  // A process that was there all along gets what a killed one held, and never too early.
  void expect_survivor_takes_over() {
    auto survivor = start_client("8GiB", words("init retain wait fill 512MiB wait"));
    survivor->read_until_ready();
    auto victim = start_client("8GiB", words("init retain fill 512MiB wait"));
    victim->read_until_ready();
    victim->kill(SIGKILL);
    victim->finish();
    survivor->go_on();
    EXPECT_EQ(field(survivor->read_until_ready()[0], "count="), 15);
    EXPECT_LE(node_->tenant_high_water(0, tenant_), 8 * kGiB);
  }
};

TEST_F(ProcessLifeTest, KilledProcessGivesEverythingBack) {
  auto victim = start_client("8GiB", words("init retain fill 1GiB wait"));
  victim->read_until_ready();
  victim->kill(SIGKILL);
  victim->finish();
  const Outcome next = client("8GiB", words("init retain meminfo fill 256MiB"));
  EXPECT_EQ(field(line_of(next.out, "meminfo"), "free="), 8 * kGiB - 256 * kMiB);
  EXPECT_EQ(field(line_of(next.out, "fill"), "count="), 31);
}

TEST_F(ProcessLifeTest, SurvivorTakesOverWhatTheDeadHeld) {
  expect_survivor_takes_over();
}

TEST_F(ProcessLifeTest, MemoryTheDriverStillHoldsIsNotGivenOutAgain) {
  node_->file()->header.linger_ns =
      50000000;  // the dying process's device files close that much later
  node_->reset_high_water();
  expect_survivor_takes_over();
}

TEST_F(ProcessLifeTest, PidUsedAgainByAnotherTenantDoesNotKeepTheDeadCharged) {
  auto survivor = start_client("8GiB", words("init retain wait fill 512MiB wait"));
  survivor->read_until_ready();
  auto victim = start_client("8GiB", words("init retain alloc 4GiB wait"));
  victim->read_until_ready();
  const pid_t pid = victim->pid();
  victim->outlast_start_time();
  victim->kill(SIGKILL);
  victim->finish();
  const Environment stranger_environment =
      capped("8GiB") + Environment{{"FRACGPU_TENANT", tenant_ + "-stranger"}};
  const std::vector<std::string> command = {
      TEST_WITH_PID, std::to_string(pid), TEST_CLIENT, "init", "retain", "alloc", "6GiB", "wait"};
  Program stranger(command, stranger_environment);
  if (stranger.read_until_ready().empty() && stranger.finish().status == 77) {
    GTEST_SKIP() << "no process may be given a PID here";
  }
  EXPECT_GT(node_->used_by_pid(0, pid), 6 * kGiB) << "the stranger has not got the PID";
  survivor->go_on();
  EXPECT_EQ(field(survivor->read_until_ready()[0], "count="), 15);
  stranger.finish();
  unlink((ledger_path() + "-stranger").c_str());
}

TEST_F(ProcessLifeTest, DescriptorsClosedByTheOwner) {
  auto owner = start_client("8GiB", words("init retain alloc 4GiB closefrom 3 wait alloc 1GiB "
                                          "free 0 wait"));
  owner->read_until_ready();
  const Outcome other = client("8GiB", words("init retain alloc 4GiB"));
  EXPECT_EQ(field(line_of(other.out, "alloc"), "rc="), 2) << "the owner was taken for dead";
  owner->go_on();
  for (const std::string& line : owner->read_until_ready()) {
    EXPECT_EQ(field(line, "rc="), 0) << line;
  }
  expect_books_agree(owner->pid(), "after closefrom");
}

TEST_F(ProcessLifeTest, ForkedChildHoldsNothingAndHarmsNothing) {
  auto program =
      start_client("8GiB", words("init retain alloc 4GiB fork meminfo alloc 1GiB free 0"));
  // In a forked child the driver itself answers "not initialized"; the parent's charge stays.
  const Outcome outcome = program->finish();
  EXPECT_EQ(field(line_of(outcome.out, "meminfo"), "rc="), 3) << outcome.out;
  EXPECT_EQ(field(line_of(outcome.out, "alloc", 1), "rc="), 3);
}

TEST_F(ProcessLifeTest, ParentsChargeOutlivesItsChild) {
  const std::string script = std::string(TEST_CLIENT) + " init retain alloc 1GiB";
  auto parent = start_client("8GiB", words("init retain alloc 4GiB wait alloc 1000 wait"));
  parent->read_until_ready();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(run({"sh", "-c", script + "; " + script}, capped("8GiB")).status, 0);
  }
  parent->go_on();
  parent->read_until_ready();
  expect_books_agree(parent->pid(), "after others came and went");
}

TEST_F(ProcessLifeTest, ExecIntoItselfStartsWithNothing) {
  auto program = start_client(
      "8GiB", words("init retain alloc 6GiB exec init retain meminfo alloc 6GiB meminfo wait"));
  const auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 8u);
  EXPECT_EQ(field(lines[5], "free="), 8 * kGiB - 256 * kMiB);
  EXPECT_EQ(field(lines[6], "rc="), 0);
  expect_books_agree(program->pid(), "after exec");
}

TEST_F(ProcessLifeTest, LaunchTreeSharesOneTenant) {
  Environment environment = capped("2GiB");
  environment.erase("FRACGPU_TENANT");
  // The shell names the tree; both of its children must be in it. Its file is removed by name.
  const std::string one = std::string(TEST_CLIENT) + " init retain alloc 1GiB wait";
  Program tree({"sh", "-c", "echo $FRACGPU_TENANT; " + one + " & read go; " + one + " <&0"},
               environment);
  const std::string name = tree.read_line();
  if (name.empty()) GTEST_SKIP() << "this machine is a container: its name is the mount namespace";
  EXPECT_EQ(name.rfind("tree-" + std::to_string(tree.pid()), 0), 0u) << name;
  const std::vector<std::string> first = tree.read_until_ready();
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(field(first[2], "rc="), 0);
  unlink((layout::kFilePrefix + name).c_str());
}

// A launch tree's name comes once, so its file is nobody's when the tree has ended.
TEST_F(ProcessLifeTest, LedgersOfLaunchesThatEndedGoAway) {
  const auto tree = [&](int number) {
    return Environment{{"FRACGPU_TENANT", "tree-" + tenant_ + "-" + std::to_string(number)}};
  };
  const auto exists = [&](int number) {
    return access((layout::kFilePrefix + tree(number).at("FRACGPU_TENANT")).c_str(), F_OK) == 0;
  };
  // Who has given all back leaves nothing.
  client("8GiB", words("init retain alloc 1GiB free 0 release"), tree(0));
  EXPECT_FALSE(exists(0));
  // Who ends with memory leaves the file, since the driver has the memory for a while longer, and
  // the next launch sweeps. (It looks at some of the files: other tests may have many.)
  auto living = start_client("8GiB", words("init retain alloc 1GiB wait"), tree(1));
  living->read_until_ready();
  client("8GiB", words("init retain alloc 1GiB"), tree(2));
  int last = 3;
  do {
    client("8GiB", words("init retain alloc 1GiB"), tree(last));
  } while (exists(2) && ++last < 50);
  EXPECT_FALSE(exists(2)) << "after " << last << " launches";
  EXPECT_TRUE(exists(1)) << "its process lives";
  living->finish();
  for (int i = 1; i <= last; ++i) {
    unlink((layout::kFilePrefix + tree(i).at("FRACGPU_TENANT")).c_str());
  }
}

TEST_F(ProcessLifeTest, WhatTheDriverStillHoldsIsSweptLater) {
  const Environment ended = {{"FRACGPU_TENANT", "tree-" + tenant_ + "-ended"}};
  const std::string path = layout::kFilePrefix + ended.at("FRACGPU_TENANT");
  // The device files of who dies close that much later.
  node_->file()->header.linger_ns = 2'000'000'000;
  auto victim = start_client("8GiB", words("init retain alloc 4GiB wait"), ended);
  victim->read_until_ready();
  victim->kill(SIGKILL);
  victim->finish();
  client("8GiB", words("init retain"), {{"FRACGPU_TENANT", "tree-" + tenant_ + "-next"}});
  // The launch tree goes on: a process of it starts while the driver has the dead one's memory.
  const Outcome next = client("8GiB", words("init retain alloc 6GiB"), ended);
  EXPECT_EQ(field(line_of(next.out, "alloc"), "rc="), 2) << "the sweep forgot what is still held";
  unlink(path.c_str());
  unlink((layout::kFilePrefix + ("tree-" + tenant_ + "-next")).c_str());
}

TEST_F(ProcessLifeTest, AChangedCapTakesEffectWhenTheTenantHasEnded) {
  auto running = start_client("4GiB", words("init retain wait"));
  running->read_until_ready();
  const Outcome meanwhile = client("8GiB", words("init retain total"));
  EXPECT_EQ(field(line_of(meanwhile.out, "total"), "bytes="), 4 * kGiB);
  EXPECT_NE(meanwhile.err.find("stays capped at 4.0 GiB"), std::string::npos)
      << "reported, not ignored: " << meanwhile.err;
  running->finish();
  const Outcome afterwards = client("8GiB", words("init retain total"));
  EXPECT_EQ(field(line_of(afterwards.out, "total"), "bytes="), 8 * kGiB);
}

TEST_F(ProcessLifeTest, RawChildrenOfEveryKind) {
  const char* const script = R"(
import ctypes, os, sys
cu = ctypes.CDLL("libcuda.so.1"); cu.cuInit(0)
ctx = ctypes.c_void_p(); cu.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), 0); cu.cuCtxSetCurrent(ctx)
def alloc(mib):
    p = ctypes.c_uint64()
    return cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(mib << 20))
assert alloc(512) == 0
libc = ctypes.CDLL(None)
SIGCHLD = 17
# raw clone (no atfork handlers run), vfork-like posix_spawn, and fork
pid = libc.syscall(56, SIGCHLD, 0, 0, 0, 0)
if pid == 0:
    os._exit(0 if alloc(1) == 3 else 1)
assert os.waitpid(pid, 0)[1] == 0, "clone"
pid = os.fork()
if pid == 0:
    os._exit(0 if alloc(1) == 3 else 1)
assert os.waitpid(pid, 0)[1] == 0, "fork"
pid = os.posix_spawn("/bin/true", ["true"], os.environ)
assert os.waitpid(pid, 0)[1] == 0, "posix_spawn"
assert alloc(512) == 0
print("ready", flush=True)
sys.stdin.readline()
)";
  Program program({"python3", "-c", script}, capped("8GiB"));
  EXPECT_TRUE(program.read_until_ready().empty());
  EXPECT_EQ(ledger().total_held(uuid()), node_->tenant_used(0, tenant_));
  program.go_on();
  const Outcome outcome = program.finish();
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

}  // namespace
}  // namespace fracgpu::test
