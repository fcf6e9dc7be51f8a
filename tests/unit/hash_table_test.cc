// The hash table under all tables: random changes, and each invariant broken.
#include "shim/base/hash_table.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <vector>

namespace fracgpu {
namespace {

struct Entry {
  uint64_t key = 0;
  uint64_t value = 0;
};
using Table = HashTable<Entry, 16>;

TEST(HashTableTest, IsSoundWhateverComesAndGoes) {
  auto table = std::make_unique<Table>();
  std::map<uint64_t, uint64_t> model;
  std::mt19937_64 random(3);
  for (int step = 0; step < 20000; ++step) {
    const uint64_t key = (random() % 3000 + 1) << 21;
    if (random() % 2 == 0) {
      table->insert(key)->value = model[key] = random();
    } else if (Entry* const entry = table->find(key); entry != nullptr) {
      EXPECT_EQ(model.erase(key), 1u);
      table->erase(entry);
    } else {
      EXPECT_EQ(model.count(key), 0u);
    }
    if (step % 100 == 0) {
      ASSERT_EQ(table->check_invariants(), "") << step;
    }
  }
  EXPECT_EQ(table->size(), model.size());
  for (const auto& [key, value] : model) EXPECT_EQ(table->find(key)->value, value);
  table->erase_if([](const Entry& entry) { return entry.value % 2 == 0; });
  EXPECT_EQ(table->check_invariants(), "");
}

// The keys of entries in the order in which they lie.
std::vector<Entry*> entries_of(Table& table) {
  std::vector<Entry*> entries;
  table.for_each([&](Entry& entry) { entries.push_back(&entry); });
  return entries;
}

TEST(HashTableTest, ALostEntryIsFound) {
  Table table;
  for (uint64_t key = 1; key <= 5; ++key) table.insert(key);
  ASSERT_EQ(table.check_invariants(), "");
  entries_of(table)[2]->key = 0;
  EXPECT_EQ(table.check_invariants(), "a hash table counts its entries");
}

TEST(HashTableTest, AKeyThatIsThereTwiceIsFound) {
  Table table;
  for (uint64_t key = 1; key <= 5; ++key) table.insert(key);
  const std::vector<Entry*> entries = entries_of(table);
  entries[3]->key = entries[1]->key;
  EXPECT_EQ(table.check_invariants(),
            "a look-up of an entry's key ends at that entry, so no key is there twice");
}

TEST(HashTableTest, AGapBeforeAnEntryIsFound) {
  Table table;
  // Two keys with one home: the second lies behind the first.
  const auto home = [](uint64_t key) { return hash_of(key) % 16; };
  uint64_t second = 2;
  while (home(second) != home(1)) ++second;
  uint64_t elsewhere = 2;
  while (home(elsewhere) == home(1) || home(elsewhere) == (home(1) + 1) % 16) ++elsewhere;
  table.insert(1);
  table.insert(second);
  table.insert(elsewhere);
  ASSERT_EQ(table.check_invariants(), "");
  std::swap(*table.find(1), *table.find(elsewhere));
  EXPECT_NE(table.check_invariants(), "");
}

TEST(HashTableTest, AFullTableIsFound) {
  HashTable<Entry, 2> table;
  table.insert(1);
  // What lies behind the only entry: the table has two slots.
  Entry* const first = table.find(1);
  Entry* const slots = hash_of(1) % 2 == 0 ? first : first - 1;
  slots[0].key = slots[1].key = 1;
  EXPECT_EQ(table.check_invariants(), "a hash table has a free slot, at which look-ups end");
}

}  // namespace
}  // namespace fracgpu
