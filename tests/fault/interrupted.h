// What every test of an interrupted operation begins with: the operation's trace.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/fault/world.h"

namespace fracgpu::fault {

class Interrupted : public testing::TestWithParam<Operation> {
 protected:
  void SetUp() override {
    // Nothing may wait without end: a hang ends the program.
    alarm(is_campaign() ? 1800 : 300);
    Interruption run(GetParam());
    if (run.child->forbidden()) GTEST_SKIP() << "tracing is not permitted here";
    ASSERT_TRUE(run.child->ready());
    trace_ = run.child->trace();
    ASSERT_GT(trace_.size(), 0u);
    EXPECT_EQ(run.child->finish(), 0);
  }
  void TearDown() override { alarm(0); }

  Trace trace_;  // of the whole operation
};

}  // namespace fracgpu::fault
