// What is known of modules and libraries, and how far calls may go without a reading.
#include "shim/tracking/module_table.h"

#include <gtest/gtest.h>

#include "shim/process/process.h"
#include "shim/tracking/library_table.h"

namespace fracgpu {
namespace {

const void* handle(uint64_t number) {
  return reinterpret_cast<const void*>(number << 4);
}

TEST(ModuleTableTest, FindsByImageAndByHandle) {
  ModuleTable table;
  EXPECT_EQ(table.of_image(0, 1), nullptr) << "not identified";
  KnownModule* const first = table.of_image(7, 1);
  ASSERT_NE(first, nullptr);
  table.enter(first, handle(1));
  EXPECT_EQ(table.of_image(7, 1), first);
  EXPECT_NE(table.of_image(7, 2), first) << "another context";
  EXPECT_EQ(table.of_handle(handle(1)), first);
  EXPECT_EQ(table.of_handle(handle(2)), nullptr);
  EXPECT_EQ(table.of_handle(nullptr), nullptr);
}

TEST(ModuleTableTest, AHandleThatIsGivenOutAgainMeansTheNewOne) {
  ModuleTable table;
  KnownModule* const first = table.of_image(7, 1);
  table.enter(first, handle(1));
  KnownModule* const second = table.of_image(8, 1);
  table.enter(second, handle(1));
  EXPECT_EQ(table.of_handle(handle(1)), second);
  EXPECT_EQ(first->handle, nullptr);
}

TEST(ModuleTableTest, TheOldestWithoutAnInstanceMakesPlace) {
  ModuleTable table;
  constexpr uint64_t kMost = ModuleTable::kMax;
  for (uint64_t image = 1; image <= kMost; ++image)
    table.enter(table.of_image(image, 1), handle(image));
  EXPECT_EQ(table.of_image(kMost + 1, 1), nullptr) << "all live";
  table.of_handle(handle(40))->handle = nullptr;
  table.of_handle(handle(20))->handle = nullptr;
  KnownModule* const place = table.of_image(kMost + 1, 1);
  ASSERT_NE(place, nullptr);
  table.enter(place, handle(kMost + 1));
  EXPECT_EQ(table.of_image(40, 1)->used, 40u) << "the younger one stayed";
  table.forget_context(1);
  EXPECT_EQ(table.of_handle(handle(kMost + 1)), nullptr);
}

// Programs load their modules by the thousand, and what is not entered stays charged.
TEST(GuessedChargesTest, EachIsGivenBack) {
  constexpr uint64_t kModules = 3000;
  GuessedCharges modules;
  for (uint64_t i = 1; i <= kModules; ++i) {
    modules.enter({.key = GuessedCharges::key_of(handle(i)),
                   .units = i,
                   .device_index = 0,
                   .context = static_cast<uint16_t>(1 + i % 2)});
  }
  EXPECT_EQ(modules.take(GuessedCharges::key_of(handle(kModules))).units, kModules);
  EXPECT_EQ(modules.take(GuessedCharges::key_of(handle(kModules))).key, 0u) << "taken once";
  EXPECT_EQ(modules.take(GuessedCharges::key_of(handle(kModules + 1))).key, 0u);
  EXPECT_EQ(modules.take(GuessedCharges::key_of(nullptr)).key, 0u);
  uint64_t odd = 0, count = 0;
  modules.take_of(2, [&](const GuessedCharges::Entry& module) {
    odd += module.units;
    ++count;
  });
  EXPECT_EQ(count, kModules / 2);
  EXPECT_EQ(odd, kModules / 2 * (kModules / 2)) << "the sum of the odd numbers below it";
  EXPECT_EQ(modules.take(GuessedCharges::key_of(handle(1))).key, 0u);
  EXPECT_EQ(modules.take(GuessedCharges::key_of(handle(2))).units, 2u);
}

// What a reading has told is not given back by a guess.
TEST(GuessedChargesTest, IsForgottenWhenAReadingTells) {
  GuessedCharges charges;
  const uint64_t limit = GuessedCharges::key_of_limit(1, 2);
  charges.enter({.key = limit, .units = 100, .device_index = 0, .context = 1, .value = 7});
  charges.enter({.key = GuessedCharges::key_of(handle(1)), .units = 200, .device_index = 3});
  charges.forget_device(0);
  EXPECT_EQ(charges.find(limit).units, 0u);
  EXPECT_EQ(charges.take(GuessedCharges::key_of(handle(1))).units, 200u) << "of another device";
}

TEST(LibraryTableTest, IsLoadedByContext) {
  LibraryTable table;
  table.enter(handle(1), 1);
  table.enter(handle(1), 2);
  table.enter(handle(2), 1);
  EXPECT_TRUE(table.is_loaded(handle(1), 1));
  EXPECT_FALSE(table.is_loaded(handle(2), 2));
  table.forget(handle(1));
  EXPECT_FALSE(table.is_loaded(handle(1), 1));
  EXPECT_FALSE(table.is_loaded(handle(1), 2));
  EXPECT_TRUE(table.is_loaded(handle(2), 1));
  table.forget_context(1);
  EXPECT_FALSE(table.is_loaded(handle(2), 1));
}

TEST(UnreadCallsTest, MoreGoUnreadEachTimeThatAReadingAgrees) {
  UnreadCalls calls;
  const auto allowed = [&] {
    int count = 0;
    while (calls.take()) ++count;
    return count;
  };
  EXPECT_EQ(allowed(), 0) << "nothing was checked yet";
  calls.judge(true);
  const int first = allowed();
  EXPECT_GT(first, 0);
  calls.judge(true);
  EXPECT_EQ(allowed(), 2 * first);
  calls.judge(true);
  calls.judge(false);
  EXPECT_EQ(allowed(), 0);
  calls.judge(true);
  EXPECT_EQ(allowed(), first);
}

TEST(LargestSeenTest, OneSampleMayRaiseTheEstimateAndOnlyTheSecondLowersIt) {
  LargestSeen seen;
  EXPECT_EQ(seen.foreseen(100), 100u);
  EXPECT_TRUE(seen.in_doubt(0)) << "nothing was seen yet";
  EXPECT_FALSE(seen.covers(0));
  seen.see(4);
  EXPECT_EQ(seen.foreseen(100), 100u) << "another thread may have given something back meanwhile";
  EXPECT_EQ(seen.foreseen(2), 4u);
  EXPECT_TRUE(seen.in_doubt(4));
  seen.see(6);
  EXPECT_EQ(seen.foreseen(100), 6u);
  EXPECT_FALSE(seen.in_doubt(6));
  EXPECT_TRUE(seen.in_doubt(7));
  seen.see(5);
  EXPECT_EQ(seen.foreseen(100), 6u);
  EXPECT_TRUE(seen.covers(6));
  EXPECT_FALSE(seen.covers(7));
}

}  // namespace
}  // namespace fracgpu
