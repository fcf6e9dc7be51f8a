// Limits of contexts (cuCtxSetLimit) where NVML does not tell what the process holds: what raising
// one takes is estimated before the driver is called, and stays charged until the context ends.
#include "sim/node/calls.h"
#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

constexpr uint64_t kCap = 6 * kGiB;

enum class Silent { switched_off, closed_modules };

class ContextLimit : public Rig, public testing::WithParamInterface<Silent> {
 protected:
  ContextLimit() : Rig("a100-40gb", 256, NvidiaDriver{"580.65.06", false}) {}

  std::unique_ptr<Program> start(const std::string& commands, Environment extra = {}) const {
    if (GetParam() == Silent::closed_modules)
      return start_in_pid_namespace("6GiB", words(commands), extra);
    extra["FRACGPU_NVML"] = "off";
    return start_client("6GiB", words(commands), extra);
  }
  bool can_run() const { return GetParam() == Silent::switched_off || can_make_pid_namespace(); }
  // What a context is charged by: an estimate, or what the device's use has grown by.
  static uint64_t context() { return (GetParam() == Silent::switched_off ? 512 : 256) * kMiB; }
  // Ready, with all calls done.
  static void expect_all_done(Program& program) {
    for (const std::string& line : program.read_until_ready())
      EXPECT_EQ(field(line, "rc="), 0) << line;
  }
};

TEST_P(ContextLimit, WhatItTakesIsUnderTheCap) {
  if (!can_run()) GTEST_SKIP() << "no PID namespace can be made here";
  // The A100's 108 multiprocessors have 2,048 threads each.
  for (const char* raise : {"limit 0 5120", "limit 1 1GiB", "limit 2 1GiB", "limit 3 9"}) {
    auto program = start(std::string("init retain ") + raise + " fill 64MiB wait");
    const auto lines = program->read_until_ready();
    ASSERT_FALSE(lines.empty()) << raise;
    EXPECT_EQ(field(lines[lines.size() - 2], "rc="), 0) << raise;
    EXPECT_GT(field(lines.back(), "count="), 32) << raise;
    EXPECT_LE(node_->tenant_high_water(0, tenant_), kCap) << raise;
    EXPECT_GE(ledger().total_held(key()), node_->tenant_used(0, tenant_)) << raise;
    // `unshare` waits for the client. If it were killed, the client would live on for a moment and
    // hold the whole cap.
    EXPECT_EQ(program->finish().status, 0) << raise;
  }
}

TEST_P(ContextLimit, WhatDoesNotFitIsRefusedBeforeTheDriverIsAsked) {
  if (!can_run()) GTEST_SKIP() << "no PID namespace can be made here";
  const std::string path = node_path_ + ".calls";
  auto program = start("init retain alloc 4GiB limit 2 2GiB wait", {{sim::kCallsVariable, path}});
  const auto lines = program->read_until_ready();
  const auto calls = sim::CallCounts::open(path);
  unlink(path.c_str());
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(field(lines.back(), "rc="), 2) << lines.back();
  EXPECT_EQ(calls->beginning_with("cuCtxSetLimit"), 0u);
}

TEST_P(ContextLimit, IsChargedOnce) {
  if (!can_run()) GTEST_SKIP() << "no PID namespace can be made here";
  auto program = start(
      "init retain limit 2 520MiB wait limit 2 520MiB wait limit 2 16MiB wait limit 2 264MiB wait "
      "limit 2 520MiB wait limit 2 776MiB wait");
  // A driver may keep what a lowered limit took.
  for (const uint64_t heap : {512, 512, 512, 512, 512, 768}) {
    expect_all_done(*program);
    EXPECT_EQ(ledger().total_held(key()), context() + heap * kMiB);
    program->go_on();
  }
}

TEST_P(ContextLimit, IsGivenBackWithTheContext) {
  if (!can_run()) GTEST_SKIP() << "no PID namespace can be made here";
  auto program =
      start("init retain limit 2 1GiB limit 1 1GiB release wait retain limit 2 1GiB wait");
  expect_all_done(*program);
  EXPECT_EQ(ledger().total_held(key()), 0u);
  program->go_on();
  expect_all_done(*program);
  EXPECT_EQ(ledger().total_held(key()), context() + (1024 - 8) * kMiB);
}

INSTANTIATE_TEST_SUITE_P(Where, ContextLimit,
                         testing::Values(Silent::switched_off, Silent::closed_modules),
                         [](const auto& info) {
                           return info.param == Silent::switched_off ? "NvmlIsOff"
                                                                     : "NvmlNamesHostPids";
                         });

}  // namespace
}  // namespace fracgpu::test
