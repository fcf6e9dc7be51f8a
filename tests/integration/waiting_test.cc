// Threads that wait in the library: for NVML, which may take long or for ever, and for the loader.
#include <fstream>
#include <sstream>

#include "sim/node/calls.h"
#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

class WaitingTest : public Rig {
 protected:
  Outcome waiting(const std::string& what, const std::string& argument,
                  const Environment& extra = {}) {
    return run({TEST_WAITING_CLIENT, what, argument}, capped("1GiB") + extra);
  }

  // Nobody turns in circles while others wait for NVML: with the delay the same work takes hardly
  // more of the processors' time than without it.
  Outcome expect_sleep(const std::string& what, const std::string& delay, long long at_least_us) {
    const Outcome at_once = waiting(what, "4");
    const Outcome outcome = waiting(what, "4", {{"FRACGPU_SIM_DELAY_US", delay}});
    const std::string line = line_of(outcome.out, "together");
    EXPECT_EQ(field(line, "rc="), 0) << outcome.out << outcome.err;
    EXPECT_GE(field(line, "wall_us="), at_least_us) << line;
    const long long work_us = field(line_of(at_once.out, "together"), "cpu_us=");
    EXPECT_LT(field(line, "cpu_us=") - work_us, field(line, "wall_us=") / 10) << line;
    return outcome;
  }
};

TEST_F(WaitingTest, ForAReadingThreadsSleepAndOthersAllocate) {
  const Outcome outcome =
      expect_sleep("readings", "nvmlDeviceGetComputeRunningProcesses_v2=200000", 600000);
  EXPECT_GT(field(line_of(outcome.out, "together"), "allocations="), 100);
}

TEST_F(WaitingTest, ForTheStartOfNvmlThreadsSleep) {
  expect_sleep("contexts", "nvmlInit_v2=1000000", 1000000);
}

// While one thread loads NVML, another one's constructor may need what the first holds.
TEST_F(WaitingTest, AConstructorUsesTheDeviceFirst) {
  for (const char* what : {"constructor", "retaining_constructor"}) {
    const Outcome outcome = waiting(what, TEST_CONSTRUCTOR_LIBRARY);
    EXPECT_EQ(outcome.status, 0) << what << ", nobody went on: " << outcome.err;
    EXPECT_EQ(field(line_of(outcome.out, "constructor"), "rc="), 0) << outcome.out << outcome.err;
  }
}

TEST_F(WaitingTest, NvmlIsNotTouchedWhenSwitchedOff) {
  const std::string path = node_path_ + ".calls";
  auto program = start_client("2GiB", words("init retain alloc 4MiB module meminfo wait"),
                              {{"FRACGPU_NVML", "off"}, {sim::kCallsVariable, path}});
  for (const std::string& line : program->read_until_ready()) {
    EXPECT_EQ(field(line, "rc="), 0) << line;
  }
  const auto calls = sim::CallCounts::open(path);
  unlink(path.c_str());
  EXPECT_EQ(calls->of_nvml(), 0u);
  std::ostringstream maps;
  maps << std::ifstream("/proc/" + std::to_string(program->pid()) + "/maps").rdbuf();
  EXPECT_EQ(maps.str().find("nvidia-ml"), std::string::npos);
  EXPECT_EQ(ledger().held(key(), program->pid()), (512 + 4) * kMiB) << "a context is estimated";
}

TEST_F(WaitingTest, SmallArraysAreGivenBackWithoutNvml) {
  Program program({TEST_REPEAT_CLIENT, "makearrays", "3", "wait", "droparrays", "3", "wait"},
                  capped("2GiB") + Environment{{"FRACGPU_NVML", "off"}});
  program.read_until_ready();
  EXPECT_EQ(ledger().held(key(), program.pid()), (512 + 3 * 2) * kMiB);
  program.go_on();
  program.read_until_ready();
  EXPECT_EQ(ledger().held(key(), program.pid()), 512 * kMiB);
}

TEST_F(WaitingTest, AnUnknownSwitchIsSaid) {
  const Outcome outcome = client("1GiB", words("init retain"), {{"FRACGPU_NVML", "never"}});
  EXPECT_EQ(field(line_of(outcome.out, "retain"), "rc="), 0);
  EXPECT_NE(outcome.err.find("FRACGPU_NVML='never' is neither \"on\" nor \"off\""),
            std::string::npos)
      << outcome.err;
}

}  // namespace
}  // namespace fracgpu::test
