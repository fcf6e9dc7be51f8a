// Contexts keep their ids until what was allocated in them is given back.
#include "shim/tracking/context_table.h"

#include <gtest/gtest.h>

#include <memory>

namespace fracgpu {
namespace {

const void* handle(uintptr_t value) {
  return reinterpret_cast<const void*>(value);
}

TEST(ContextTableTest, HandleReuseGetsAnotherId) {
  auto table = std::make_unique<ContextTable>();
  const Context first = table->enter(handle(16), 0, 3);
  EXPECT_NE(first.id, kUntrackedContext);
  EXPECT_EQ(first.device_index, 3);
  EXPECT_EQ(table->enter(handle(16), 0, 3).id, first.id) << "entering twice is entering once";

  const uint64_t epoch = table->epoch();
  Context forgotten;
  ASSERT_TRUE(table->forget(handle(16), forgotten));
  EXPECT_EQ(forgotten.id, first.id);
  EXPECT_NE(table->epoch(), epoch) << "threads must look again";
  EXPECT_FALSE(table->forget(handle(16), forgotten));

  const Context second = table->enter(handle(16), 0, 1);
  EXPECT_NE(second.id, first.id) << "allocations of the old context may still be listed";
  table->recycle(first.id);
  EXPECT_EQ(table->enter(handle(32), 0, 0).id, first.id);
}

TEST(ContextTableTest, FullTableChargesWithoutTracking) {
  auto table = std::make_unique<ContextTable>();
  for (uintptr_t i = 1; i <= 1024; ++i) {
    ASSERT_NE(table->enter(handle(i * 16), 0, 0).id, kUntrackedContext);
  }
  const Context beyond = table->enter(handle(99999), 0, 5);
  EXPECT_EQ(beyond.id, kUntrackedContext);
  EXPECT_EQ(beyond.device_index, 5);
}

TEST(ContextTableTest, AttachCountsDown) {
  auto table = std::make_unique<ContextTable>();
  table->enter(handle(16), 0, 0);
  EXPECT_EQ(table->attach(handle(16), 1), 2);
  EXPECT_EQ(table->attach(handle(16), -1), 1);
  EXPECT_EQ(table->attach(handle(16), -1), 0);
  EXPECT_EQ(table->attach(handle(32), -1), 0);
}

}  // namespace
}  // namespace fracgpu
