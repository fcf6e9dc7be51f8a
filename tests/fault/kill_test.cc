// Kills a process at every instruction of every operation of the ledger. Whatever it left, the
// others go on: nothing is lost, nothing forgotten, and the cap holds.
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/fault/code_ranges.h"
#include "tests/fault/stepped.h"
#include "tests/fault/world.h"

namespace fracgpu::fault {
namespace {

class Killed : public testing::TestWithParam<Operation> {
 protected:
  // Nothing here may wait without end: a hang ends the program.
  void SetUp() override { alarm(is_campaign() ? 1800 : 300); }
  void TearDown() override { alarm(0); }
};

TEST_P(Killed, AtEveryInstruction) {
  const Operation& operation = GetParam();
  const LedgerCode code;
  ASSERT_FALSE(code.empty()) << "the program has no symbol table";
  Trace trace;
  {
    Interruption run(operation);
    if (run.child->forbidden()) GTEST_SKIP() << "tracing is not permitted here";
    ASSERT_TRUE(run.child->ready());
    trace = run.child->trace();
    ASSERT_GT(trace.size(), 0u);
    EXPECT_EQ(run.child->finish(), 0);
  }
  const std::vector<size_t> points = points_of(trace, 3);
  size_t killed = 0, killed_in_ledger = 0;
  for (const size_t point : points) {
    Interruption run(operation);
    ASSERT_TRUE(run.child->ready() && run.child->run_to(trace, point))
        << "the child went another way before instruction " << point;
    run.child->kill();
    ASSERT_EQ(run.world.judge_death(operation.orphaned), "")
        << "killed after " << point << " of " << trace.size() << " instructions";
    ++killed;
    killed_in_ledger += point < trace.size() && code.contains(trace.address[point]);
  }
  size_t in_ledger = 0;
  for (const uint64_t address : trace.address) in_ledger += code.contains(address);
  std::printf("%-40s %5zu instructions, %5zu in the ledger's functions; %5zu kills, %5zu there\n",
              operation.name, trace.size(), in_ledger, killed, killed_in_ledger);
  ASSERT_GT(in_ledger, 0u);
  if (points.size() == trace.size() + 1) {
    EXPECT_EQ(killed, trace.size() + 1) << "one before each instruction, and one after the last";
    EXPECT_EQ(killed_in_ledger, in_ledger);
  }
}

INSTANTIATE_TEST_SUITE_P(Operation, Killed, testing::ValuesIn(operations()),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace fracgpu::fault
