// What runs of graphs may count on: memory that is there, and not what the driver may still refuse.
#include "shim/tracking/graph_table.h"

#include <gtest/gtest.h>

namespace fracgpu {
namespace {

constexpr uint64_t kUnits = 100, kStream = 7, kOtherStream = 8, kFalls = 3;
constexpr int kDevice = 0;
const int executions[2] = {};
const void* const kFirst = &executions[0];
const void* const kSecond = &executions[1];

class GraphTableTest : public testing::Test {
 protected:
  GraphTableTest() {
    table_.set(kFirst, kDevice, kUnits);
    table_.set(kSecond, kDevice, kUnits / 2);
  }
  uint64_t growth(const void* exec, uint64_t stream = kStream, uint64_t falls = kFalls) {
    return table_.growth(exec, kDevice, stream, falls);
  }
  void run(const void* exec) { end(begin(exec)); }
  void end(const GraphTable::Run& run, bool done = true) { table_.end_run(kDevice, run, done); }
  GraphTable::Run begin(const void* exec, uint64_t stream = kStream) {
    return table_.begin_run(exec, kDevice, stream, kFalls);
  }

  GraphTable table_;
};

TEST_F(GraphTableTest, WhatRanLastHasItsMemory) {
  EXPECT_EQ(growth(kFirst), kUnits);
  run(kFirst);
  EXPECT_EQ(growth(kFirst), 0u);
  EXPECT_EQ(growth(kFirst, kOtherStream), 0u);
  EXPECT_EQ(growth(kSecond), 0u) << "in one stream they share it";
  EXPECT_EQ(growth(kSecond, kOtherStream), kUnits / 2);
  EXPECT_EQ(growth(kFirst, kStream, kFalls + 1), kUnits) << "the charge has fallen";
}

TEST_F(GraphTableTest, ARunThatTheDriverMayRefuseCoversNoOther) {
  const GraphTable::Run refused = begin(kFirst);
  EXPECT_EQ(growth(kFirst), kUnits);
  EXPECT_EQ(growth(kSecond), kUnits / 2);
  end(refused, false);
  EXPECT_EQ(growth(kFirst), kUnits);
  run(kFirst);
  EXPECT_EQ(growth(kFirst), 0u);
}

TEST_F(GraphTableTest, OfTwoAtOnceNobodyKnowsWhichCameLast) {
  for (const bool begun_first : {true, false}) {
    const GraphTable::Run one = begin(kFirst), other = begin(kSecond, kOtherStream);
    end(begun_first ? one : other);
    end(begun_first ? other : one);
    EXPECT_EQ(growth(kFirst), kUnits);
    EXPECT_EQ(growth(kSecond, kOtherStream), kUnits / 2);
  }
  run(kFirst);
  EXPECT_EQ(growth(kFirst), 0u);
}

TEST_F(GraphTableTest, WhatChangedMeanwhileIsNotRemembered) {
  const GraphTable::Run run = begin(kFirst);
  table_.set(kFirst, kDevice, 2 * kUnits);
  end(run);
  EXPECT_EQ(growth(kFirst), 2 * kUnits);
}

TEST_F(GraphTableTest, IsForgottenAndPutBackWithAllThatIsKnownOfIt) {
  table_.set(kFirst, 5, 7, false);
  table_.set_made(kFirst, 3, 1000);
  const GraphTable::Graph known = table_.take(kFirst);
  EXPECT_EQ(known.context, 3);
  EXPECT_EQ(known.bytes, 1000u);
  EXPECT_EQ(table_.units(kFirst, kDevice), 0u);
  EXPECT_EQ(table_.units(kFirst, 5), 0u);
  EXPECT_EQ(table_.units(kSecond, kDevice), kUnits / 2);
  EXPECT_EQ(table_.take(kFirst).bytes, 0u);
  table_.put_back(kFirst, known);
  EXPECT_EQ(table_.units(kFirst, kDevice), kUnits);
  EXPECT_EQ(table_.units(kFirst, 5), 7u);
  EXPECT_EQ(table_.take(kFirst).bytes, 1000u);
  table_.set_made(kSecond, 4, 500);
  table_.forget_context(4);
  EXPECT_EQ(table_.take(kSecond).bytes, 0u);
}

}  // namespace
}  // namespace fracgpu
