// Contexts are charged by what the driver counts, and everything made in one goes with it.
#include <unistd.h>

#include <thread>

#include "sim/node/calls.h"
#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

using ContextTest = Rig;

// NVML works, but its list of processes does not.
constexpr char kNoList[] = "nvmlDeviceGetComputeRunningProcesses_v2:1+=9";

TEST_F(ContextTest, LedgerAndNodeAgreeThroughTheLifeOfContexts) {
  const char* const steps =
      "init retain wait ctxcreate wait alloc 100MiB alloc 5KiB wait ctxdestroy wait "
      "ctxcreate alloc 7MiB ctxcreate alloc 3MiB wait ctxdestroy ctxdestroy wait release wait";
  auto program = start_client("4GiB", words(steps));
  for (const char* when :
       {"primary", "second context", "allocations in the second",
        "second destroyed with all it held", "two more", "both destroyed", "primary released"}) {
    for (const std::string& line : program->read_until_ready()) {
      EXPECT_EQ(field(line, "rc="), 0) << line;
    }
    expect_books_agree(program->pid(), when);
    program->go_on();
  }
  EXPECT_EQ(ledger().total_held(uuid()), 0u);
}

TEST_F(ContextTest, ResetFreesEverythingOnTheDevice) {
  auto program = start_client(
      "4GiB", words("init retain alloc 1GiB alloc 1000 reset wait retain meminfo wait"));
  program->read_until_ready();
  expect_books_agree(program->pid(), "reset");
  program->go_on();
  program->read_until_ready();
  expect_books_agree(program->pid(), "retained again");
}

// As libcuda 535 does it: what a pool gave is the device's.
TEST_F(ContextTest, APoolOutlivesAReset) {
  for (const char* const failing : {"", kNoList}) {
    auto program = start_client(
        "4GiB", words("init retain pooled 100MiB reset wait retain pooled 10MiB meminfo wait"),
        {{"FRACGPU_SIM_FAIL", failing}});
    program->read_until_ready();
    expect_books_agree(program->pid(), "reset");
    program->go_on();
    program->read_until_ready();
    expect_books_agree(program->pid(), "retained again");
  }
}

// A driver may crash that is asked about a stream which ended with its context.
TEST_F(ContextTest, NobodyAsksAboutTheStreamsOfADeadOne) {
  const Outcome outcome = run({TEST_REPEAT_CLIENT, "afterstream", "3000"}, capped("2GiB"));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(field(line_of(outcome.out, "afterstream"), "rc="), 2) << outcome.out;
}

// It stays current to the thread that did not destroy it. What the driver says of that is the
// program's to know: it is no lack of memory.
TEST_F(ContextTest, ErrorsOfADeadContextAreTheDriversOwn) {
  const std::vector<std::string> use_dead = {TEST_REPEAT_CLIENT, "dead"};
  const Outcome without = run(use_dead, bare());
  const Outcome with = run(use_dead, capped("2GiB"));
  EXPECT_EQ(field(line_of(without.out, "cuMemAlloc"), "rc="), 709) << without.out;
  EXPECT_EQ(with.out, without.out);
  EXPECT_EQ(with.err, "");
}

TEST_F(ContextTest, RetainedTwiceIsChargedOnce) {
  auto program = start_client("4GiB", words("init retain retain retain wait release release wait "
                                            "release wait"));
  for (int i = 0; i < 3; ++i) {
    program->read_until_ready();
    expect_books_agree(program->pid(), i < 2 ? "still retained" : "released");
    program->go_on();
  }
}

TEST_F(ContextTest, ContextThatDoesNotFitIsOutOfMemory) {
  const Outcome outcome = client("200MiB", words("init retain ctxcreate"));
  EXPECT_EQ(field(line_of(outcome.out, "retain"), "rc="), 2) << outcome.out;
  EXPECT_EQ(field(line_of(outcome.out, "ctxcreate"), "rc="), 2) << outcome.out;
  EXPECT_NE(outcome.err.find("refused"), std::string::npos);
  EXPECT_EQ(node_->tenant_used(0, tenant_), 0u);
}

TEST_F(ContextTest, OnceSeenTheSizeIsReservedBeforehand) {
  // 256 MiB contexts under 700 MiB: two fit and a third must not even come into being.
  const Outcome outcome = client("700MiB", words("init retain ctxcreate ctxcreate"));
  EXPECT_EQ(field(line_of(outcome.out, "ctxcreate", 0), "rc="), 0);
  EXPECT_EQ(field(line_of(outcome.out, "ctxcreate", 1), "rc="), 2);
  EXPECT_EQ(node_->tenant_high_water(0, tenant_), 512 * kMiB);
}

TEST_F(ContextTest, FailureOfTheDriverLeavesNoCharge) {
  auto program = start_client("4GiB", words("init retain retain wait"),
                              {{"FRACGPU_SIM_FAIL", "cuDevicePrimaryCtxRetain:1=999"}});
  const auto lines = program->read_until_ready();
  EXPECT_EQ(field(lines[1], "rc="), 999);
  EXPECT_EQ(field(lines[2], "rc="), 0);
  expect_books_agree(program->pid(), "after a failed retain");
}

// Where the driver's list of processes says nothing, a context is what the GPU's use grows by.
TEST_F(ContextTest, WithoutTheListOfProcessesAContextIsMeasured) {
  const Outcome outcome =
      client("4GiB", words("init retain meminfo ctxcreate meminfo ctxdestroy release meminfo"),
             {{"FRACGPU_SIM_FAIL", kNoList}, {"FRACGPU_LOG", "info"}});
  EXPECT_EQ(field(line_of(outcome.out, "meminfo"), "free="), 4 * kGiB - 256 * kMiB) << outcome.out;
  EXPECT_EQ(field(line_of(outcome.out, "meminfo", 1), "free="), 4 * kGiB - 512 * kMiB)
      << outcome.out;
  EXPECT_NE(outcome.err.find("charged by what the GPU's use grew by, 256.0 MiB"), std::string::npos)
      << outcome.err;
}

// Another tenant frees while a context is made, so that the GPU's use grows by less than it takes.
TEST_F(ContextTest, WhoFreesMeanwhileLetsNoContextSeemSmaller) {
  const std::string path = node_path_ + ".calls";
  for (int i = 0; i < 3; ++i) {
    Program neighbour(
        {TEST_CLIENT, "init", "retain", "alloc", "100MiB", "wait", "free", "0", "wait"},
        bare() + abroad());
    neighbour.read_until_ready();
    auto program = start_client("4GiB", words("init retain wait"),
                                {{"FRACGPU_SIM_FAIL", kNoList},
                                 {"FRACGPU_SIM_DELAY_US", "cuDevicePrimaryCtxRetain=300000"},
                                 {sim::kCallsVariable, path}});
    const auto calls = sim::CallCounts::open(path);
    while (calls->beginning_with("cuDevicePrimaryCtxRetain") == 0) std::this_thread::yield();
    neighbour.go_on();
    neighbour.read_until_ready();
    program->read_until_ready();
    unlink(path.c_str());
    EXPECT_GE(ledger().total_held(uuid()), 256 * kMiB) << "of context " << i;
  }
}

// The use of other tenants hides how small a context is, until two have seemed just as large.
TEST_F(ContextTest, BesideOthersTheEstimateStandsUntilTwoContextsAgree) {
  Program neighbour({TEST_CLIENT, "init", "retain", "alloc", "2GiB", "wait"}, bare() + abroad());
  neighbour.read_until_ready();
  const Environment no_list = {{"FRACGPU_SIM_FAIL", kNoList}};
  auto first = start_client("4GiB", words("init retain wait"), no_list);
  first->read_until_ready();
  EXPECT_EQ(ledger().held(uuid(), first->pid()), 512 * kMiB);
  auto second = start_client("4GiB", words("init retain wait"), no_list);
  second->read_until_ready();
  EXPECT_EQ(ledger().held(uuid(), second->pid()), 256 * kMiB);
}

TEST_F(ContextTest, WithoutNvmlAnEstimateIsChargedAndSaidSo) {
  // An NVML that cannot be initialised stands for none at all.
  const Outcome outcome =
      client("4GiB", words("init retain meminfo release meminfo"),
             {{"FRACGPU_SIM_FAIL", "nvmlInit_v2:1+=9"}, {"FRACGPU_LOG", "info"}});
  EXPECT_EQ(field(line_of(outcome.out, "meminfo"), "free="), 4 * kGiB - 512 * kMiB) << outcome.out;
  EXPECT_NE(outcome.err.find("charged by estimate, 512.0 MiB"), std::string::npos) << outcome.err;
}

// Contexts are larger on GPUs with more multiprocessors; where nothing tells, none is charged less
// than it takes.
class UntoldContextTest : public Rig, public ::testing::WithParamInterface<const char*> {
 protected:
  UntoldContextTest() : Rig(GetParam(), -1) {}  // contexts as the profile has them
};

TEST_P(UntoldContextTest, IsNeverAboveItsEstimate) {
  const uint64_t cap = 4 * kGiB;
  auto program =
      start_client("4GiB", words("init retain wait fill 16MiB wait"), {{"FRACGPU_NVML", "off"}});
  program->read_until_ready();
  const uint64_t taken = node_->tenant_used(0, tenant_);
  EXPECT_GT(taken, 0u);
  EXPECT_GE(ledger().held(uuid(), program->pid()), taken);
  program->go_on();
  program->read_until_ready();
  EXPECT_LE(node_->tenant_high_water(0, tenant_), cap);
}

INSTANTIATE_TEST_SUITE_P(Cards, UntoldContextTest,
                         ::testing::Values("a30", "a100-40gb", "h100-80gb", "h200", "b200", "gb200",
                                           "rtx6000-ada", "rtx-pro-6000"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST_F(ContextTest, OldDriverInItsOwnPidNamespaceIsNotBelieved) {
  // Before 535.113.01 NVML speaks of host PIDs: in the host's namespace that is fine.
  auto program =
      start_client("4GiB", words("init retain wait"), {{"FRACGPU_SIM_NVML_DRIVER", "525.60.13"}});
  program->read_until_ready();
  expect_books_agree(program->pid(), "old driver, host PIDs");
}

}  // namespace
}  // namespace fracgpu::test
