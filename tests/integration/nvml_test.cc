// What NVML and nvidia-smi show inside a tenant: the capped device, before, during and after use.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/nvml_rig.h"

namespace fracgpu::test {
namespace {

class NvmlTest : public NvmlRig {
 protected:
  NvmlTest() : NvmlRig("a100-40gb", 256) {}
  std::string shown(const std::string& limit) const {
    return ask("v1 v2", capped(limit) + reserved()).out;
  }
  // What the driver keeps for itself of the real device is not the tenant's.
  static Environment reserved() { return {{"FRACGPU_SIM_NVML_RESERVED_MIB", "600"}}; }
};

TEST_F(NvmlTest, ShowsTheTenantsViewInBothVersions) {
  auto program = start_client("8GiB", words("init retain alloc 3GiB wait"));
  program->read_until_ready();
  const std::string text = shown("8GiB");
  for (const char* version : {"v1", "v2"}) {
    const std::string line = line_of(text, version);
    EXPECT_EQ(field(line, "total="), 8 * kGiB) << text;
    EXPECT_EQ(field(line, "used="), 3 * kGiB + 256 * kMiB);
    EXPECT_EQ(field(line, "free="), 5 * kGiB - 256 * kMiB);
  }
  EXPECT_EQ(field(line_of(text, "v2"), "reserved="), 0);
}

TEST_F(NvmlTest, BeforeAnyGpuProcessTheTotalIsAlreadyTheCap) {
  const std::string line = line_of(shown("8GiB"), "v1");
  EXPECT_EQ(field(line, "total="), 8 * kGiB);
  EXPECT_EQ(field(line, "used="), 0);
  EXPECT_NE(access(ledger_path().c_str(), F_OK), 0) << "a tool must leave nothing behind";
}

TEST_F(NvmlTest, InTheTenantOfADeadProcess) {
  auto program = start_client("8GiB", words("init retain alloc 3GiB wait"));
  program->read_until_ready();
  program->kill(SIGKILL);
  program->finish();
  const std::string line = line_of(shown("4GiB"), "v1");
  EXPECT_EQ(field(line, "total="), 4 * kGiB) << "the dead tenant's cap no longer counts";
  EXPECT_EQ(field(line, "used="), 0);
}

TEST_F(NvmlTest, WhatTheDriverReservesIsNotTheTenants) {
  const std::string line = line_of(ask("v2", bare() + reserved()).out, "v2");
  EXPECT_EQ(field(line, "reserved="), 600 * kMiB) << "without the library it is there";
  EXPECT_EQ(field(line, "free="), (40960 - 600) * kMiB);
  EXPECT_EQ(field(line_of(ask("v1", bare() + reserved()).out, "v1"), "used="), 600 * kMiB);
}

TEST_F(NvmlTest, ErrorsAreTheLibrarysOwn) {
  const std::string with = ask("bad null", capped("8GiB")).out;
  EXPECT_EQ(with, ask("bad null", bare()).out);
  EXPECT_EQ(field(line_of(with, "bad"), "rc="), 25) << with;
}

TEST_F(NvmlTest, NothingIsCappedTwiceWhereNvmlCallsItself) {
  // The first version asks the second through the PLT: half of a half would be shown. The reserve
  // of 600 MiB is none that programs can have, so it is no part of what is halved
  // (unslothai/unsloth-zoo PR 1053).
  EXPECT_EQ(field(line_of(shown("50%"), "v1"), "total="), (40960 - 600) / 2 * kMiB);
}

// A GPU in confidential-computing mode has 39 GiB of protected memory here, and one that is not.
TEST_F(NvmlTest, ProtectedMemoryIsTheTenantsToo) {
  const Environment protecting = {{"FRACGPU_SIM_NVML_CC", "1"}};
  auto program = start_client("8GiB", words("init retain alloc 3GiB wait"));
  program->read_until_ready();
  const std::string bare_text = ask("protected", bare() + protecting).out;
  EXPECT_EQ(field(line_of(bare_text, "protected"), "total="), 39 * kGiB);
  EXPECT_EQ(field(line_of(bare_text, "sizes"), "protected="), 39 << 20);
  const std::string text = ask("protected", capped("8GiB") + protecting).out;
  EXPECT_EQ(field(line_of(text, "protected"), "total="), 8 * kGiB) << text;
  EXPECT_EQ(field(line_of(text, "protected"), "used="), 3 * kGiB + 256 * kMiB);
  EXPECT_EQ(field(line_of(text, "protected"), "free="), 5 * kGiB - 256 * kMiB);
  EXPECT_EQ(field(line_of(text, "sizes"), "protected="), 8 << 20);
  EXPECT_EQ(field(line_of(text, "sizes"), "unprotected="), 0);
  EXPECT_EQ(field(line_of(ask("protected", capped("8GiB")).out, "protected"), "rc="), 3)
      << "without confidential computing";
}

TEST_F(NvmlTest, PerDeviceLimitsByIndex) {
  const std::string line = line_of(shown("0=2GiB"), "v1");
  EXPECT_EQ(field(line, "total="), 2 * kGiB);
}

// A tool needs no right but to read: the ledger's file is open to every user.
TEST_F(NvmlTest, ForAnotherUser) {
  auto program = start_client("8GiB", words("init retain alloc 3GiB wait"));
  program->read_until_ready();
  const std::vector<std::string> nobody = {"setpriv", "--reuid=65534", "--regid=65534",
                                           "--clear-groups"};
  const auto as_nobody = [&](std::vector<std::string> args) {
    args.insert(args.begin(), nobody.begin(), nobody.end());
    return run(args, capped("8GiB") + Environment{{"PATH", "/usr/bin:/bin"}});
  };
  ASSERT_EQ(chmod(node_path_.c_str(), 0666), 0);
  if (as_nobody({"python3", TEST_NVML_CLIENT}).status != 0 ||
      as_nobody({"head", "-c1", TEST_SHIM}).status != 0) {
    GTEST_SKIP() << "other users cannot be had here, or cannot see this folder";
  }
  const Outcome outcome =
      as_nobody({"python3", TEST_NVML_CLIENT, "v1", "list", "ComputeRunningProcesses_v3"});
  EXPECT_EQ(field(line_of(outcome.out, "v1"), "total="), 8 * kGiB) << outcome.err;
  EXPECT_EQ(field(line_of(outcome.out, "v1"), "used="), 3 * kGiB + 256 * kMiB);
  EXPECT_EQ(listed(outcome.out, "ComputeRunningProcesses_v3"), held_by({program->pid()}));
}

TEST_F(NvmlTest, AMalformedLimitIsADeviceOfNothing) {
  const Outcome outcome = ask("v1 v2 list ComputeRunningProcesses_v3", capped("8"));
  EXPECT_EQ(field(line_of(outcome.out, "v1"), "total="), 0) << outcome.out;
  EXPECT_EQ(field(line_of(outcome.out, "v2"), "free="), 0);
  EXPECT_NE(outcome.err.find("'8' is not understood"), outcome.err.npos) << outcome.err;
}

}  // namespace
}  // namespace fracgpu::test
