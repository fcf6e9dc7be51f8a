// Bad input and faults: each has one defined outcome, and never a crash, a hang, a leak or memory
// beyond the cap.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

class BadInputTest : public Rig {
 protected:
  // GPU memory is refused with one line that contains `reason`; everything else goes on.
  void expect_refused(const Outcome& outcome, const std::string& reason) {
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(field(line_of(outcome.out, "retain"), "rc="), 2) << outcome.out;
    EXPECT_NE(outcome.err.find(reason), std::string::npos) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1)
        << "one line for one cause: " << outcome.err;
    EXPECT_EQ(node_->tenant_used(0, tenant_), 0u);
    EXPECT_EQ(node_->tenant_high_water(0, tenant_), 0u) << "memory was taken without a cap";
  }
};

TEST_F(BadInputTest, NoCapConfiguredPassesThroughAndCreatesNothing) {
  Environment environment = capped("");
  environment.erase("FRACGPU_MEMORY_LIMIT");
  const Outcome with =
      run({TEST_CLIENT, "init", "retain", "meminfo", "alloc", "30GiB"}, environment);
  const Outcome without = run({TEST_CLIENT, "init", "retain", "meminfo", "alloc", "30GiB"}, bare());
  EXPECT_EQ(line_of(with.out, "meminfo"), line_of(without.out, "meminfo"));
  EXPECT_EQ(field(line_of(with.out, "alloc"), "rc="), 0);
  EXPECT_EQ(with.err, "");
  EXPECT_NE(access(ledger_path().c_str(), F_OK), 0) << "a ledger was made though nothing is capped";
}

TEST_F(BadInputTest, MalformedLimitRefusesAndSaysWhatIsAccepted) {
  for (const char* limit : {"", "8", "8XB", "-1GiB", "0=8GiB,", "101%", "lots"}) {
    const Outcome outcome = client(limit, words("init retain meminfo"));
    expect_refused(outcome, "accepted: 8GiB");
    EXPECT_NE(outcome.err.find("FRACGPU_MEMORY_LIMIT"), std::string::npos) << outcome.err;
  }
  const Outcome other = run({"/bin/echo", "fine"}, capped("lots"));
  EXPECT_EQ(other.status, 0);
  EXPECT_EQ(other.out, "fine\n");
  EXPECT_EQ(other.err, "") << "programs without a GPU are none of its business";
}

TEST_F(BadInputTest, MalformedTenantName) {
  for (const char* name : {"a/b", "../etc", "", ".hidden", "a b"}) {
    expect_refused(client("8GiB", words("init retain"), {{"FRACGPU_TENANT", name}}),
                   "is not a tenant name");
  }
  expect_refused(client("8GiB", words("init retain"), {{"FRACGPU_TENANT", std::string(200, 'x')}}),
                 "is not a tenant name");
}

TEST_F(BadInputTest, LimitNamesAnUnknownDevice) {
  expect_refused(client("7=8GiB", words("init retain")), "names device 7");
  expect_refused(client("GPU-00000000-1111-2222-3333-444455556666=8GiB", words("init retain")),
                 "which this machine does not have");
  // With this device capped anyway the slip is only worth a line.
  const Outcome outcome = client("8GiB,7=1GiB", words("init retain total"));
  EXPECT_EQ(field(line_of(outcome.out, "total"), "bytes="), 8 * kGiB);
  EXPECT_NE(outcome.err.find("names device 7"), std::string::npos) << outcome.err;
}

TEST_F(BadInputTest, WhatLiesAtTheLedgersPath) {
  const std::string path = ledger_path();
  { std::ofstream(path) << "short"; }
  expect_refused(client("8GiB", words("init retain")), "not a ledger");
  { std::ofstream(path) << std::string(sizeof(layout::Ledger), 'x'); }
  expect_refused(client("8GiB", words("init retain")), "not a ledger");
  unlink(path.c_str());
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  expect_refused(client("8GiB", words("init retain")), "directory");
  rmdir(path.c_str());
  ASSERT_EQ(symlink("/etc/passwd", path.c_str()), 0);
  expect_refused(client("8GiB", words("init retain")), "symbolic link");
}

TEST_F(BadInputTest, UnusableDevShm) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root for a mount namespace";
  // The node's file must stay visible, so it is bind-mounted into the small /dev/shm.
  const std::string prepare =
      "keep=$(mktemp) && touch $keep && mount --bind " + node_path_ + " $keep && ";
  const std::string start = " && touch " + node_path_ + " && mount --bind $keep " + node_path_;
  const std::string go = " && exec " TEST_CLIENT " init retain meminfo";
  const auto in_private_mounts = [&](const std::string& script) {
    return run({"unshare", "-m", "sh", "-c", script}, capped("8GiB"));
  };
  expect_refused(
      in_private_mounts(prepare + "mount -t tmpfs -o size=32k none /dev/shm" + start + go),
      "no space left");
  expect_refused(in_private_mounts(prepare + "mount -t tmpfs -o size=1m none /dev/shm" + start +
                                   " && mount -o remount,ro /dev/shm" + go),
                 "read-only");
}

// The kernel sends SIGXFSZ to whoever makes a larger file.
TEST_F(BadInputTest, LimitOfFileSizes) {
  if (thread_sanitized())
    GTEST_SKIP() << "TSan's runtime maps a file of its own, which the limit leaves empty";
  expect_refused(
      run({"sh", "-c", "ulimit -f 8; exec " TEST_CLIENT " init retain meminfo"}, capped("8GiB")),
      "ulimit -f");
}

TEST_F(BadInputTest, DriverAbsent) {
  Environment environment = capped("1GiB");
  environment.erase("LD_LIBRARY_PATH");
  EXPECT_EQ(run({"/bin/true"}, environment).status, 0);
  EXPECT_EQ(run({TEST_CLIENT, "init"}, environment).status, 3) << "the client finds no driver";
  // A program that probes for the function must not find it: there is nothing behind our own.
  const Outcome probe =
      run({"python3", "-c", "import ctypes; print(hasattr(ctypes.CDLL(None), 'cuMemAlloc_v2'))"},
          environment);
  EXPECT_EQ(probe.out, "False\n") << probe.err;
}

TEST_F(BadInputTest, DriverFailsAfterTheReservation) {
  for (const char* function : {"cuMemAlloc_v2:1=2", "cuMemAlloc_v2:1=999"}) {
    auto program = start_client("8GiB", words("init retain alloc 1GiB alloc 1GiB wait"),
                                {{"FRACGPU_SIM_FAIL", function}});
    const auto lines = program->read_until_ready();
    EXPECT_NE(field(lines[2], "rc="), 0);
    EXPECT_EQ(field(lines[3], "rc="), 0);
    expect_books_agree(program->pid(), function);
  }
}

TEST_F(BadInputTest, FreeOfUnknownForeignOrFreedPointers) {
  auto program = start_client(
      "8GiB", words("init retain alloc 1GiB freeptr 0x0 freeptr 0x123400 freeptr 0x7fffffff0000 "
                    "free 0 free 0 alloc 1000 alloc 1000 free 1 free 1 wait"));
  const auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 12u);
  const auto plain =
      run({TEST_CLIENT, "init", "retain", "alloc", "1GiB", "freeptr", "0x0", "freeptr", "0x123400",
           "freeptr", "0x7fffffff0000", "free", "0", "free", "0"},
          bare());
  for (const size_t i : {3, 4, 5}) {
    EXPECT_EQ(lines[i], line_of(plain.out, "freeptr", static_cast<int>(i - 3)))
        << "the driver's own answer";
  }
  EXPECT_EQ(field(lines[6], "rc="), 0);
  EXPECT_NE(field(lines[7], "rc="), 0) << "a double free is the driver's error";
  EXPECT_EQ(field(lines[10], "rc="), 0);
  EXPECT_NE(field(lines[11], "rc="), 0);
  expect_books_agree(program->pid(), "after bad frees");
}

TEST_F(BadInputTest, FreeThatTheDriverRefusesKeepsTheCharge) {
  auto program = start_client("8GiB", words("init retain alloc 1GiB alloc 1000 free 0 free 1 wait"),
                              {{"FRACGPU_SIM_FAIL", "cuMemFree_v2:1=999,cuMemFree_v2:2=999"}});
  program->read_until_ready();
  expect_books_agree(program->pid(), "after two frees that failed");
}

TEST_F(BadInputTest, AbsurdSizes) {
  auto program = start_client(
      "8GiB",
      words("init retain alloc 0 alloc 0x8000000000000000 alloc 0xffffffffffffffff "
            "managed 0x8000000000000000 pitch 0x8000000000000000 0x8000000000000000 4 "
            "pitch 0xffffffffffffffff 2 4 pitch 0 0 4 alloc 0xffffffffffe00001 meminfo wait"));
  const auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 11u);
  EXPECT_EQ(field(lines[2], "rc="), 1) << "size 0 is CUDA_ERROR_INVALID_VALUE";
  for (const size_t i : {3, 4, 5, 9}) EXPECT_EQ(field(lines[i], "rc="), 2) << lines[i];
  for (const size_t i : {6, 7, 8}) EXPECT_NE(field(lines[i], "rc="), 0) << lines[i];
  EXPECT_EQ(field(lines[10], "free="), 8 * kGiB - 256 * kMiB);
  expect_books_agree(program->pid(), "after absurd sizes");
}

TEST_F(BadInputTest, LogGoesWhereItIsSent) {
  const std::string file = "/dev/shm/log-" + tenant_;
  const Outcome outcome =
      client("1GiB", words("init retain alloc 2GiB"), {{"FRACGPU_LOG_FILE", file}});
  EXPECT_EQ(outcome.err, "");
  std::ifstream stream(file);
  const std::string log{std::istreambuf_iterator<char>(stream), {}};
  unlink(file.c_str());
  EXPECT_NE(log.find("cuMemAlloc refused"), std::string::npos) << log;
  EXPECT_EQ(client("1GiB", words("init retain alloc 2GiB"), {{"FRACGPU_LOG", "off"}}).err, "");
  const Outcome wrong = client("1GiB", words("init retain"), {{"FRACGPU_LOG", "loud"}});
  EXPECT_NE(wrong.err.find("accepted: off, error, warn, info, debug"), std::string::npos)
      << wrong.err;
}

TEST_F(BadInputTest, LogSaysWhereTheLargestLiveAllocationsCameFrom) {
  const auto commands = words("init retain alloc 3GiB alloc 2GiB alloc 1GiB free 1 alloc 4GiB");
  const std::string log = client("8GiB", commands, {{"FRACGPU_LOG", "info"}}).err;
  const size_t asked = log.find("asked 4.0 GiB"),
               holds = log.find("4.0 GiB that this process holds");
  ASSERT_NE(asked, log.npos) << log;
  ASSERT_NE(holds, log.npos) << log;
  // The stack of the refused call, then that of those which live: what was freed does not count.
  EXPECT_LT(log.find("cuda_client+0x", asked), holds) << log;
  EXPECT_EQ(log.find("in 2 of its largest allocations:\n", holds),
            holds + std::string("4.0 GiB that this process holds ").size());
  EXPECT_NE(log.find("cuda_client+0x", holds), log.npos) << log;
  EXPECT_EQ(client("8GiB", commands).err.find("that this process holds"), log.npos);
}

TEST_F(BadInputTest, RefusalsAreRateLimited) {
  std::vector<std::string> commands = words("init retain");
  for (int i = 0; i < 500; ++i) commands.insert(commands.end(), {"alloc", "2GiB"});
  const Outcome outcome = client("1GiB", commands);
  EXPECT_LT(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 20) << outcome.err;
}

TEST_F(BadInputTest, CallStackOnRequest) {
  const Outcome outcome =
      client("1GiB", words("init retain alloc 2GiB"), {{"FRACGPU_LOG", "info"}});
  EXPECT_NE(outcome.err.find("cuda_client+0x"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace fracgpu::test
