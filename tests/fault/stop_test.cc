// Stops a process at any instruction of any operation of the ledger, for as long as one cares to
// wait. The others get what is free without waiting long, and never more; when it goes on, it ends
// its operation, and the ledger is right.
#include "tests/fault/interrupted.h"

namespace fracgpu::fault {
namespace {

class Stopped : public Interrupted {};
class Grant : public Interrupted {};

TEST_P(Stopped, AnywhereDoesNotStopTheOthers) {
  const Operation& operation = GetParam();
  std::vector<size_t> points = points_of(trace_, 1);
  // Where the lock is held the first to want it waits a while at each point.
  const size_t stride = is_campaign() ? 1 : points.size() / 40 + 1;
  uint64_t longest_ns = 0;
  size_t stopped = 0;
  for (size_t i = 0; i < points.size(); i += stride, ++stopped) {
    Interruption run(operation);
    ASSERT_TRUE(run.child->ready());
    ASSERT_TRUE(run.child->run_to(trace_, points[i]));
    const std::string where = "stopped after " + std::to_string(points[i]) + " of " +
                              std::to_string(trace_.size()) + " instructions";
    ASSERT_EQ(run.world.judge_standstill(longest_ns), "") << where;
    ASSERT_EQ(run.child->finish(), 0) << where;
    ASSERT_EQ(run.world.judge_death(operation.orphaned), "") << where << ", and gone on";
  }
  std::printf("%-40s %5zu instructions, stopped at %5zu; others waited %.1f ms at most\n",
              operation.name, trace_.size(), stopped, static_cast<double>(longest_ns) * 1e-6);
}

// While it stands still within a grant, maybe with the lock, another one's driver has taken so much
// that there is room for what was asked and for nothing more.
TEST_P(Grant, LeavesNoLeaseAboveAnOverdraft) {
  const Operation& operation = GetParam();
  std::vector<size_t> points = points_of(trace_, 1);
  const size_t stride = is_campaign() ? 1 : points.size() / 200 + 1;
  size_t stopped = 0;
  for (size_t i = 0; i < points.size(); i += stride, ++stopped) {
    Interruption run(operation);
    ASSERT_TRUE(run.child->ready());
    ASSERT_TRUE(run.child->run_to(trace_, points[i]));
    Ledger& survivor = run.world.survivor();
    const int device = run.world.device();
    survivor.charge_taken(device, kCap - survivor.held_by_self(device) - kGranted);
    ASSERT_TRUE(run.child->complete());
    ASSERT_EQ(run.world.judge_leases(), "")
        << "an overdraft after " << points[i] << " of " << trace_.size() << " instructions";
    ASSERT_EQ(run.child->finish(), 0);
  }
  std::printf("%-40s %5zu instructions, overdrafts at %5zu\n", operation.name, trace_.size(),
              stopped);
}

INSTANTIATE_TEST_SUITE_P(Operation, Stopped, testing::ValuesIn(operations()),
                         [](const auto& info) { return test_name(info.param); });
INSTANTIATE_TEST_SUITE_P(Operation, Grant, testing::ValuesIn(grants()),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace fracgpu::fault
