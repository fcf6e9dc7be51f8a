// Kills a process at every instruction of every operation of the ledger. Whatever it left, the
// others go on: nothing is lost, nothing forgotten, and the cap holds.
#include "tests/fault/code_ranges.h"
#include "tests/fault/interrupted.h"

namespace fracgpu::fault {
namespace {

class Killed : public Interrupted {};

TEST_P(Killed, AtEveryInstruction) {
  const Operation& operation = GetParam();
  const LedgerCode code;
  ASSERT_FALSE(code.empty()) << "the program has no symbol table";
  const std::vector<size_t> points = points_of(trace_, 3);
  size_t killed = 0, killed_in_ledger = 0;
  for (const size_t point : points) {
    Interruption run(operation);
    ASSERT_TRUE(run.child->ready() && run.child->run_to(trace_, point))
        << "the child went another way before instruction " << point;
    run.child->kill();
    ASSERT_EQ(run.world.judge_death(operation.orphaned), "")
        << "killed after " << point << " of " << trace_.size() << " instructions";
    ++killed;
    killed_in_ledger += point < trace_.size() && code.contains(trace_.address[point]);
  }
  size_t in_ledger = 0;
  for (const uint64_t address : trace_.address) in_ledger += code.contains(address);
  std::printf("%-40s %5zu instructions, %5zu in the ledger's functions; %5zu kills, %5zu there\n",
              operation.name, trace_.size(), in_ledger, killed, killed_in_ledger);
  ASSERT_GT(in_ledger, 0u);
  if (points.size() == trace_.size() + 1) {
    EXPECT_EQ(killed, trace_.size() + 1) << "one before each instruction, and one after the last";
    EXPECT_EQ(killed_in_ledger, in_ledger);
  }
}

INSTANTIATE_TEST_SUITE_P(Operation, Killed, testing::ValuesIn(operations()),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace fracgpu::fault
