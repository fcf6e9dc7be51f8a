// PIDs in NVML's lists: drivers differ in whose they are, and processes in where they live.
#include <unistd.h>

#include "tests/integration/nvml_rig.h"

namespace fracgpu::test {
namespace {

// A process of the tenant in a PID namespace of its own.
class NvmlPidsTest : public NvmlRig {
 protected:
  NvmlPidsTest() : NvmlRig("a100-40gb", 256) {}

  void SetUp() override {
    NvmlRig::SetUp();
    if (IsSkipped()) return;
    if (run({"unshare", "--pid", "--fork", "true"}, bare()).status != 0) {
      GTEST_SKIP() << "no PID namespace can be made here";
    }
    std::vector<std::string> args = {"unshare", "--pid", "--fork", TEST_CLIENT};
    for (const std::string& word : words("init retain alloc 3GiB pid wait")) args.push_back(word);
    // One after the other: NVML does not tell what the first one holds, whose context is charged by
    // what the device's use grows by, all others' too.
    inside_ = std::make_unique<Program>(args, capped("8GiB"));
    for (const std::string& line : inside_->read_until_ready()) {
      if (line.rfind("pid ", 0) == 0) inner_pid_ = std::stoi(line.substr(4));
    }
    outside_ = start_client("8GiB", words("init retain alloc 1GiB wait"));
    outside_->read_until_ready();
    stranger_ = start_client("8GiB", words("init retain alloc 1GiB wait"),
                             {{"FRACGPU_TENANT", tenant_ + "-other"}});
    stranger_->read_until_ready();
    for (const sim::ProcessInfo& process : node_->processes()) {
      if (process.pid == inner_pid_) outer_pid_ = process.host_pid;
    }
    ASSERT_NE(inner_pid_, outer_pid_);
  }
  ~NvmlPidsTest() override { unlink((ledger_path() + "-other").c_str()); }

  Holdings seen(const char* driver, bool from_inside) const {
    std::vector<std::string> args;
    if (from_inside) args = {"nsenter", "--target", std::to_string(outer_pid_), "--pid"};
    for (const std::string& word : words("list ComputeRunningProcesses_v2")) args.push_back(word);
    args.insert(args.end() - 2, {"python3", TEST_NVML_CLIENT});
    const Outcome outcome =
        run(args, capped("8GiB") + Environment{{"FRACGPU_SIM_NVML_DRIVER", driver}});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return listed(outcome.out, "ComputeRunningProcesses_v2");
  }

  std::unique_ptr<Program> inside_, outside_, stranger_;
  int inner_pid_ = 0, outer_pid_ = 0;
};

constexpr uint64_t kInside = 3 * kGiB + 256 * kMiB, kOutside = kGiB + 256 * kMiB;
constexpr char kHostPids[] = "535.104.05", kOwnPids[] = "535.113.01";

TEST_F(NvmlPidsTest, SeenFromOutside) {
  const Holdings both = {{outer_pid_, kInside}, {outside_->pid(), kOutside}};
  EXPECT_EQ(seen(kHostPids, false), both);
  EXPECT_EQ(seen(kOwnPids, false), both);
}

TEST_F(NvmlPidsTest, SeenFromInside) {
  EXPECT_EQ(seen(kOwnPids, true), (Holdings{{inner_pid_, kInside}}));
  // The older driver names a process by a PID that only the host knows; that of the process outside
  // is in the ledger.
  EXPECT_EQ(seen(kHostPids, true), (Holdings{{outside_->pid(), kOutside}}));
}

}  // namespace
}  // namespace fracgpu::test
