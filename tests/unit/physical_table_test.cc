// The table of memory that is made, mapped and released separately: random changes, after which
// nothing may be left, and each invariant broken.
#include "shim/tracking/physical_table.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/table_corrupter.h"

namespace fracgpu {
namespace {

constexpr uint64_t kPage = 2u << 20;

// Every use of a memory, by how it is dropped.
struct Uses {
  std::vector<uint64_t> references;      // numbers of memories
  std::map<uint64_t, uint64_t> mapped;   // number by address
  std::map<uint64_t, uint64_t> charged;  // units by number
  std::map<uint64_t, int> count;         // uses by number

  void add(uint64_t memory) { ++count[memory]; }
  void drop(uint64_t memory, const PhysicalTable::Freed& freed) {
    const bool last = --count[memory] == 0;
    ASSERT_EQ(freed.memory, last ? memory : 0);
    if (!last) return;
    ASSERT_EQ(freed.units, charged[memory]);
    charged.erase(memory);
  }
};

TEST(PhysicalTableTest, IsSoundWhateverComesAndGoes) {
  PhysicalTable table;
  Uses uses;
  std::mt19937_64 random(5);
  uint64_t next_handle = 0x1000;
  for (int step = 0; step < 20000; ++step) {
    const uint64_t address = (random() % 64 + 1) * kPage;
    switch (random() % 5) {
      case 0: {
        const uint64_t units = random() % 3 * 4096, handle = next_handle += 16;
        ASSERT_TRUE(table.add(handle, units, static_cast<int>(random() % 3)));
        const uint64_t memory = table.memory_of(handle);
        uses.charged[memory] = units;
        uses.references.push_back(memory);
        uses.add(memory);
        break;
      }
      case 1: {
        if (uses.references.empty()) break;
        const uint64_t memory = uses.references[random() % uses.references.size()];
        table.add_reference(next_handle += 16, memory);
        uses.references.push_back(memory);
        uses.add(memory);
        break;
      }
      case 2: {
        if (uses.references.empty()) break;
        std::swap(uses.references[random() % uses.references.size()], uses.references.back());
        const uint64_t memory = uses.references.back();
        uses.references.pop_back();
        uses.drop(memory, table.drop_reference(memory));
        break;
      }
      case 3: {
        if (uses.references.empty() || uses.mapped.count(address) != 0) break;
        const uint64_t memory = uses.references[random() % uses.references.size()];
        EXPECT_EQ(table.add_mapping(address, kPage, memory).memory, 0u);
        uses.mapped[address] = memory;
        uses.add(memory);
        break;
      }
      default: {
        PhysicalTable::Freed freed;
        table.drop_mappings(address, kPage, table.serial(),
                            [&](const PhysicalTable::Freed& gone) { freed = gone; });
        if (uses.mapped.count(address) == 0) break;
        uses.drop(uses.mapped[address], freed);
        uses.mapped.erase(address);
      }
    }
    if (step % 100 == 0) {
      ASSERT_EQ(table.check_invariants(), "") << step;
    }
  }
  table.drop_mappings(kPage, 64 * kPage, table.serial(), [](const PhysicalTable::Freed&) {});
  for (const uint64_t memory : uses.references) table.drop_reference(memory);
  EXPECT_EQ(table.check_invariants(), "");
  for (int device = 0; device < 3; ++device) {
    EXPECT_EQ(table.sum(device).units, 0u);
    EXPECT_EQ(table.sum(device).without_object, 0u);
    EXPECT_EQ(table.count(device), 0u);
  }
}

// The driver may return a released handle's value again before the table has dropped its entry.
TEST(PhysicalTableTest, WhatIsGivenUpIsNotReferenced) {
  PhysicalTable table;
  constexpr uint64_t kHandle = 0x302000000;
  EXPECT_FALSE(table.is_referenced(kHandle));
  ASSERT_TRUE(table.add(kHandle, 0, 0, {.exporter = 1}));
  EXPECT_TRUE(table.is_referenced(kHandle));
  const uint64_t memory = table.give_up_reference(kHandle);
  EXPECT_FALSE(table.is_referenced(kHandle));
  EXPECT_EQ(table.memory_of(kHandle), memory);
  table.keep_reference(kHandle, memory);
  EXPECT_TRUE(table.is_referenced(kHandle));
  table.give_up_reference(kHandle);
  EXPECT_EQ(table.drop_reference(memory).memory, memory);
}

TEST(PhysicalTableTest, MemoryWithoutAnObjectCountsUntilItsLastUseIsGone) {
  PhysicalTable table;
  constexpr uint64_t kHandle = 16, kPiece = uint64_t{3} << 62, kArray = 32;
  ASSERT_TRUE(table.add(kHandle, 4096, 1));
  const uint64_t memory = table.memory_of(kHandle);
  table.add_mapping(kPiece, PhysicalTable::kBindingStep, memory, kArray);
  const auto without_object = [&] { return table.sum(1).without_object; };
  EXPECT_EQ(without_object(), 0u);
  table.note_object_gone(memory);
  table.note_object_gone(memory);
  EXPECT_EQ(without_object(), 4096u);
  EXPECT_EQ(table.check_invariants(), "");
  EXPECT_EQ(table.drop_reference(memory).memory, 0u);
  EXPECT_EQ(without_object(), 4096u);
  EXPECT_TRUE(table.is_mapped(kPiece));
  table.linger(kPiece);
  PhysicalTable::Freed freed;
  table.drop_owned(kArray, table.serial(), [&](const PhysicalTable::Freed& gone) { freed = gone; });
  EXPECT_EQ(freed.memory, memory);
  EXPECT_TRUE(freed.lingers);
  EXPECT_FALSE(table.is_mapped(kPiece));
  EXPECT_EQ(without_object(), 0u);
  table.note_object_gone(memory);
  EXPECT_EQ(without_object(), 0u);
}

// The answer about every stream.
BusyStream::Outcome outcome_of_all = BusyStream::Outcome::waits;

struct UnmapTest : testing::Test {
  static constexpr uint64_t kHandle = 16, kPiece = uint64_t{3} << 62,
                            kStep = PhysicalTable::kBindingStep;
  static constexpr uint64_t kArray = 32, kStream = 48;
  static constexpr uint16_t kContext = 7;
  const BusyStream busy{.number = kStream, .context = kContext, .ask = [](const BusyStream&) {
                          return outcome_of_all;
                        }};

  PhysicalTable table;
  uint64_t memory = 0;
  std::vector<PhysicalTable::Freed> gone;

  void SetUp() override {
    outcome_of_all = BusyStream::Outcome::waits;
    ASSERT_TRUE(table.add(kHandle, 4096, 1));
    memory = table.memory_of(kHandle);
    table.add_mapping(kPiece, kStep, memory, kArray, kContext);
    table.drop_reference(table.give_up_reference(kHandle));
    table.note_object_gone(memory);
  }
  void TearDown() override { EXPECT_EQ(table.check_invariants(), ""); }
  auto note() {
    return [this](const PhysicalTable::Freed& freed) { gone.push_back(freed); };
  }
  void unmap() { table.drop_mappings(kPiece, kStep, table.serial(), note(), busy); }
};

TEST_F(UnmapTest, EndsWhenTheStreamsWorkIsDone) {
  unmap();
  EXPECT_FALSE(table.is_mapped(kPiece));
  EXPECT_EQ(table.sum(1).units, 4096u);
  EXPECT_EQ(table.sum(1).unmapped, 4096u);
  EXPECT_EQ(table.sum(1).without_object, 0u);
  table.finish_unmaps(note());
  EXPECT_TRUE(gone.empty());
  EXPECT_TRUE(table.any_unmaps());
  EXPECT_TRUE(table.has_unmaps(kStream));
  EXPECT_EQ(table.check_invariants(), "");
  outcome_of_all = BusyStream::Outcome::done;
  table.finish_unmaps(note());
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0].memory, memory);
  EXPECT_FALSE(gone[0].lingers);
  EXPECT_EQ(table.sum(1).units, 0u);
  EXPECT_FALSE(table.any_unmaps());
}

TEST_F(UnmapTest, CountsAsMappedWhileThereIsAnotherUse) {
  table.add_mapping(kPiece + 1, kStep, memory, kArray, kContext);
  unmap();
  EXPECT_EQ(table.sum(1).unmapped, 0u);
  EXPECT_EQ(table.sum(1).without_object, 4096u);
  outcome_of_all = BusyStream::Outcome::done;
  table.finish_unmaps(note());
  EXPECT_TRUE(gone.empty());
  table.drop_owned(kArray, table.serial(), note());
  EXPECT_EQ(gone.size(), 1u);
}

TEST_F(UnmapTest, ByANewMapping) {
  ASSERT_TRUE(table.add(kHandle, 512, 1));
  EXPECT_EQ(
      table.add_mapping(kPiece, kStep, table.memory_of(kHandle), kArray, kContext, busy).memory,
      0u);
  EXPECT_EQ(table.sum(1).units, 4096u + 512);
  EXPECT_EQ(table.sum(1).unmapped, 4096u);
  outcome_of_all = BusyStream::Outcome::done;
  table.finish_unmaps(note());
  EXPECT_EQ(table.sum(1).units, 512u);
  EXPECT_TRUE(table.is_mapped(kPiece));
}

TEST_F(UnmapTest, LingersIfTheDriverCannotBeAsked) {
  unmap();
  outcome_of_all = BusyStream::Outcome::unknown;
  table.finish_unmaps(note());
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_TRUE(gone[0].lingers);
}

TEST_F(UnmapTest, LingersIfTheStreamIsDestroyed) {
  unmap();
  table.forget_stream(kStream + 16, note());
  EXPECT_TRUE(gone.empty());
  table.forget_stream(kStream, note());
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_TRUE(gone[0].lingers);
  EXPECT_FALSE(table.any_unmaps());
}

TEST_F(UnmapTest, EndsWithItsContext) {
  unmap();
  table.drop_context(kContext + 1, note());
  EXPECT_TRUE(gone.empty());
  table.drop_context(kContext, note());
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_FALSE(gone[0].lingers);
}

TEST(PhysicalTableTest, EachBrokenInvariantIsFound) {
  using C = TableCorrupter;
  const std::map<std::string, std::function<void(PhysicalTable&)>> corruptions = {
      {"every memory is on a device of the ledger",
       [](PhysicalTable& t) { C::memories(t).find(1)->device_index = layout::kMaxDevices; }},
      {"every memory has a use", [](PhysicalTable& t) { C::memories(t).find(1)->uses = 0; }},
      {"no memory has a number that was not given out", [](PhysicalTable& t) { C::next(t) = 1; }},
      {"a device's units are those of its memories", [](PhysicalTable& t) { ++C::units(t)[0]; }},
      {"a device's units without an object are those of such memories",
       [](PhysicalTable& t) { ++C::without_object(t)[0]; }},
      {"a device's count is that of its memories that cost something",
       [](PhysicalTable& t) { ++C::count(t)[0]; }},
      {"every handle stands for live memory",
       [](PhysicalTable& t) { C::handles(t).find(16)->memory = 77; }},
      {"every mapping is of live memory",
       [](PhysicalTable& t) { C::mappings(t).find(kPage)->memory = 77; }},
      {"no mapping is younger than the last one", [](PhysicalTable& t) { C::serial(t) = 0; }},
      {"look-ups by address know every mapping's size and alignment",
       [](PhysicalTable& t) { C::granules(t) = 0; }},
      {"every mapping is a use of its memory",
       [](PhysicalTable& t) { C::memories(t).find(1)->uses = 1; }},
      {"an unmapping that waits is a use of its memory",
       [](PhysicalTable& t) { C::memories(t).find(1)->unmaps = 9; }},
      {"every memory knows how many of its mappings wait",
       [](PhysicalTable& t) { C::memories(t).find(1)->unmaps = 1; }},
      {"every unmapping is of live memory",
       [](PhysicalTable& t) { C::unmaps(t).insert(1)->memory = 77; }},
      {"whoever asks without the lock whether there is any memory is told so",
       [](PhysicalTable& t) { C::any(t) = false; }},
      {"a hash table counts its entries",
       [](PhysicalTable& t) { C::mappings(t).find(kPage)->key = 0; }},
  };
  for (const auto& [broken, corrupt] : corruptions) {
    PhysicalTable table;
    table.add(16, 4096, 0);
    table.add_mapping(kPage, kPage, table.memory_of(16));
    table.add_mapping(2 * kPage, kPage, table.memory_of(16));
    ASSERT_EQ(table.check_invariants(), "");
    corrupt(table);
    EXPECT_EQ(table.check_invariants(), broken);
  }
}

}  // namespace
}  // namespace fracgpu
