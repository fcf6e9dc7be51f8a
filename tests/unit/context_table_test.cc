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

// The driver may give the handle to another context before the call that destroys one returns.
TEST(ContextTableTest, AHandleThatIsLeavingMayMeanAnotherContext) {
  auto table = std::make_unique<ContextTable>();
  const Context first = table->enter(handle(16), 0, 3);
  Context leaving, found;
  const uint64_t before = table->epoch();
  ASSERT_TRUE(table->begin_drop(handle(16), leaving));
  EXPECT_EQ(leaving.id, first.id);
  EXPECT_FALSE(table->begin_drop(handle(16), found)) << "by one thread alone";
  ASSERT_TRUE(table->find(handle(16), found));
  EXPECT_EQ(found.id, first.id) << "the driver may refuse to destroy it";
  table->abandon_drop(leaving);
  EXPECT_EQ(table->epoch(), before) << "what was freed in its streams can still be waited for";
  EXPECT_EQ(table->enter(handle(16), 0, 3).id, first.id);

  ASSERT_TRUE(table->begin_drop(handle(16), leaving));
  const uint64_t epoch = table->epoch();
  const Context second = table->enter(handle(16), 0, 4);
  EXPECT_NE(second.id, first.id);
  EXPECT_NE(table->epoch(), epoch) << "threads must look again";
  ASSERT_TRUE(table->find(handle(16), found));
  EXPECT_EQ(found.id, second.id);
  table->finish_drop(leaving);
  ASSERT_TRUE(table->find(handle(16), found));
  EXPECT_EQ(found.id, second.id);
  EXPECT_EQ(table->attach(handle(16), 1), 2) << "of the second one";
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

TEST(ContextTableTest, WhatTheDriverKeepsRisesWithTheMostThatWasThereAtOnce) {
  auto table = std::make_unique<ContextTable>();
  const uint16_t id = table->enter(handle(16), 0, 0).id;
  const uint16_t other = table->enter(handle(32), 0, 0).id;
  constexpr auto kKind = ContextTable::streams;
  const auto add = [&](uint64_t amount) { return table->add(id, kKind, amount); };
  EXPECT_EQ(add(5).rise, 5u);
  EXPECT_EQ(table->add(other, kKind, 1).most, 1u);
  EXPECT_EQ(table->add(id, ContextTable::graph_bytes, 1).most, 1u);
  EXPECT_EQ(add(2).rise, 2u);
  table->remove(id, kKind, 4);
  const auto kept = add(4);
  EXPECT_EQ(kept.rise, 0u) << "kept from those that are gone";
  EXPECT_TRUE(kept.any_removed);
  const auto refused = add(3);
  EXPECT_EQ(refused.most, 10u);
  EXPECT_EQ(refused.rise, 3u);
  table->cancel(id, kKind, 3, refused);
  EXPECT_EQ(add(1).rise, 1u) << "what was refused raised nothing";
  EXPECT_EQ(table->add(kUntrackedContext, kKind, 1).rise, 0u);

  // Another context has the handle and the id of one that ended.
  Context forgotten;
  ASSERT_TRUE(table->forget(handle(16), forgotten));
  table->recycle(id);
  ASSERT_EQ(table->enter(handle(48), 0, 0).id, id);
  EXPECT_EQ(add(1).most, 1u);
}

// As a green context's handle.
TEST(ContextTableTest, AnAliasStandsForItsBaseUntilOneOfThemEnds) {
  auto table = std::make_unique<ContextTable>();
  const void *const base_handle = handle(16), *const alias_handle = handle(32);
  Context found, gone;
  const Context base = table->enter(base_handle, 1, 5);
  table->enter_alias(alias_handle, base);
  ASSERT_TRUE(table->find(alias_handle, found));
  EXPECT_EQ(found.id, base.id);
  EXPECT_EQ(found.handle, alias_handle);
  EXPECT_FALSE(table->begin_drop(alias_handle, gone)) << "it has nothing that would be gone";
  const uint64_t epoch = table->epoch();
  table->forget_alias(alias_handle);
  EXPECT_NE(table->epoch(), epoch) << "threads remember by the handle";
  EXPECT_FALSE(table->find(alias_handle, found));

  table->enter_alias(alias_handle, base);
  table->forget_alias(base_handle);
  EXPECT_TRUE(table->find(base_handle, found)) << "which is none";
  ASSERT_TRUE(table->forget(base_handle, gone));
  EXPECT_FALSE(table->find(alias_handle, found));
  EXPECT_NE(table->enter(alias_handle, 0, 4).id, base.id) << "until that is recycled";
}

}  // namespace
}  // namespace fracgpu
