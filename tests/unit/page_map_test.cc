// The page map against a plain std::map, with keys of pages, of chunks and of neither; and each
// invariant broken.
#include "shim/tracking/page_map.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <random>

#include "tests/unit/table_corrupter.h"

namespace fracgpu {
namespace {

constexpr uint64_t kPage = 2u << 20;

struct Entry {
  uint64_t key = 0;
  uint64_t value = 0;
};
using Map = PageMap<Entry>;

std::map<uint64_t, uint64_t> content_of(const Map& map) {
  std::map<uint64_t, uint64_t> content;
  map.for_each([&](const Entry& entry) {
    EXPECT_TRUE(content.emplace(entry.key, entry.value).second) << entry.key;
  });
  return content;
}

TEST(PageMapTest, AgreesWithAModel) {
  for (const uint64_t pages : {40, 3000, 1000000}) {
    auto map = std::make_unique<Map>();
    std::map<uint64_t, uint64_t> model;
    std::mt19937_64 random(5);
    for (int step = 0; step < 30000; ++step) {
      // A page, its chunk, or something in it.
      const uint64_t within[] = {0, 1, 4096, 4097};
      const uint64_t key = (random() % pages + 1) * kPage + within[random() % 4];
      Entry* const known = map->find(key);
      ASSERT_EQ(known != nullptr, model.count(key) == 1) << step;
      if (known != nullptr) {
        ASSERT_EQ(known->key, key);
        ASSERT_EQ(known->value, model[key]);
      }
      if (random() % 2 == 0) {
        Entry* const entry = map->insert(key);
        ASSERT_NE(entry, nullptr);
        ASSERT_EQ(entry->value, known != nullptr ? model[key] : 0) << "a new one is all zero";
        entry->value = model[key] = random();
      } else if (known != nullptr) {
        map->erase(known);
        model.erase(key);
      }
      if (step % 1000 == 0) {
        ASSERT_EQ(map->check_invariants(), "") << step;
      }
    }
    EXPECT_EQ(content_of(*map), model);
    map->erase_if([](const Entry& entry) { return entry.value % 2 == 0; });
    std::erase_if(model, [](const auto& each) { return each.second % 2 == 0; });
    EXPECT_EQ(content_of(*map), model);
    EXPECT_EQ(map->check_invariants(), "");
    map->erase_if([](const Entry&) { return true; });
    EXPECT_EQ(content_of(*map).size(), 0u);
  }
}

TEST(PageMapTest, NeighboursLieTogether) {
  Map map;
  for (uint64_t page = 64; page < 96; ++page) map.insert(page * kPage);
  for (uint64_t page = 65; page < 96; ++page) {
    EXPECT_EQ(map.find(page * kPage) - map.find((page - 1) * kPage), 1);
  }
}

// A program that goes through ever new addresses does not take ever more memory.
TEST(PageMapTest, EmptyLeavesAreUsedAgain) {
  auto map = std::make_unique<Map>();
  for (uint64_t page = 1; page <= 1000000; ++page) {
    map->insert(page * kPage);
    if (page > 10) map->erase(map->find((page - 10) * kPage));
  }
  EXPECT_LE(map->slots(), 32u * 3 + 16);
  EXPECT_EQ(map->check_invariants(), "");
}

TEST(PageMapTest, EachBrokenInvariantIsFound) {
  Map map;
  map.insert(kPage);
  map.insert(3 * kPage);
  ASSERT_EQ(map.check_invariants(), "");
  map.find(kPage)->key = 2 * kPage;
  EXPECT_EQ(map.check_invariants(), "an entry of a leaf lies in the place of its page");
  (map.find(3 * kPage) - 2)->key = 0;
  EXPECT_EQ(map.check_invariants(), "a leaf counts its entries");
  (map.find(3 * kPage) - 2)->key = kPage;
  ASSERT_EQ(map.check_invariants(), "");
  TableCorrupter::beside(map).insert(kPage);
  EXPECT_EQ(map.check_invariants(), "no key is in a leaf and in the hash table beside");
}

}  // namespace
}  // namespace fracgpu
