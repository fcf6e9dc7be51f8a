// The map of live allocations against a plain std::map, with colliding keys, from several threads,
// and at a million entries.
#include "shim/tracking/live_map.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/table_corrupter.h"

namespace fracgpu {
namespace {

Allocation allocation(uint64_t key, uint32_t units, uint16_t context = 1) {
  return {.key = key, .units = units, .users = 1, .context = context, .device_index = 0};
}

std::unique_ptr<LiveMap> new_map() {
  auto map = std::make_unique<LiveMap>();
  for (const int device : {0, 1}) map->add_device(device);
  return map;
}

TEST(LiveMapTest, AgreesWithAModel) {
  auto map = new_map();
  std::map<uint64_t, uint32_t> model;
  std::mt19937_64 random(7);
  for (int i = 0; i < 300000; ++i) {
    // Few distinct keys at page distance: long probe runs, much address reuse.
    const uint64_t key = (random() % 20000 + 1) * (2u << 20);
    Allocation taken, displaced;
    if (random() % 2 == 0) {
      const auto units = static_cast<uint32_t>(random() % 1000 + 1);
      ASSERT_EQ(map->add(allocation(key, units), displaced), LiveMap::Added::fresh);
      const auto known = model.find(key);
      ASSERT_EQ(displaced.key, known == model.end() ? 0 : key);
      if (known != model.end()) {
        ASSERT_EQ(displaced.units, known->second);
      }
      model[key] = units;
    } else {
      const auto known = model.find(key);
      ASSERT_EQ(map->take(key, taken), known != model.end());
      if (known != model.end()) {
        ASSERT_EQ(taken.units, known->second);
        model.erase(known);
      }
    }
    if (i % 30000 == 0) {
      ASSERT_EQ(map->check_invariants(), "") << i;
    }
  }
  EXPECT_EQ(map->check_invariants(), "");
  for (const auto& [key, units] : model) {
    Allocation taken;
    ASSERT_TRUE(map->take(key, taken));
    ASSERT_EQ(taken.units, units);
    ASSERT_FALSE(map->take(key, taken)) << "a second free of the same address finds nothing";
  }
}

TEST(LiveMapTest, ChunkIsFreeWithItsLastUser) {
  auto map = new_map();
  const Allocation chunk = allocation(0x200001, 4096);
  Allocation displaced, found;
  EXPECT_EQ(map->add_user(chunk, displaced), LiveMap::Added::fresh);
  EXPECT_EQ(map->add_user(chunk, displaced), LiveMap::Added::shared);
  ASSERT_TRUE(map->begin_drop(chunk.key, found));
  EXPECT_EQ(map->finish_drop(chunk), 0u);
  ASSERT_TRUE(map->begin_drop(chunk.key, found));
  map->abandon_drop(chunk);
  ASSERT_TRUE(map->begin_drop(chunk.key, found));
  EXPECT_EQ(map->finish_drop(chunk), 4096u);
  EXPECT_FALSE(map->begin_drop(chunk.key, found));
  EXPECT_EQ(map->finish_drop(chunk), 0u);
}

// A reading compares both with what the driver counts.
TEST(LiveMapTest, AManagedChunkCountsAsLongAsItsUnits) {
  const auto owner = new_map();
  LiveMap& map = *owner;
  Allocation chunk{.key = 0x200001, .units = 4096, .users = 1, .context = 1, .managed = true};
  Allocation displaced, found;
  const auto expect = [&](uint64_t units) {
    const LiveMap::LockedView view(map);
    EXPECT_EQ(view.units(0), units);
    EXPECT_EQ(view.managed(0), units);
  };
  map.add_user(chunk, displaced);
  map.add_user(chunk, displaced);
  expect(4096);
  ASSERT_TRUE(map.begin_drop(chunk.key, found));
  expect(4096);
  ASSERT_TRUE(map.begin_drop(chunk.key, found));
  expect(0);
  map.abandon_drop(found);
  expect(4096);
  EXPECT_EQ(map.finish_drop(found), 0u);
  expect(4096);
  ASSERT_TRUE(map.begin_drop(chunk.key, found));
  EXPECT_EQ(map.finish_drop(found), 4096u);
  expect(0);
  EXPECT_EQ(map.check_invariants(), "");
}

TEST(LiveMapTest, ChunkStaysUntilTheSlowerOfTwoFreesIsDone) {
  auto map = new_map();
  const Allocation chunk = allocation(0x200001, 4096);
  Allocation displaced, found;
  map->add_user(chunk, displaced);
  map->add_user(chunk, displaced);
  map->begin_drop(chunk.key, found);
  map->begin_drop(chunk.key, found);
  EXPECT_EQ(map->finish_drop(chunk), 0u);
  EXPECT_EQ(map->finish_drop(chunk), 4096u);
}

TEST(LiveMapTest, ChunkOfAnotherContextIsDisplaced) {
  auto map = new_map();
  Allocation displaced, found;
  map->add_user(allocation(0x200001, 4096, 1), displaced);
  map->begin_drop(0x200001, found);
  EXPECT_EQ(map->add_user(allocation(0x200001, 4096, 2), displaced), LiveMap::Added::fresh);
  EXPECT_EQ(displaced.context, 1);
  EXPECT_EQ(map->finish_drop(allocation(0x200001, 4096, 1)), 0u)
      << "a late free in the old context";
  map->begin_drop(0x200001, found);
  EXPECT_EQ(map->finish_drop(allocation(0x200001, 4096, 2)), 4096u);
}

TEST(LiveMapTest, ChunkOfAnotherPoolIsDisplaced) {
  auto map = new_map();
  const Allocation before = allocation(0x200001, 512);
  Allocation after = before;
  after.pool = 1;
  Allocation displaced, found;
  map->add_user(before, displaced);
  map->begin_drop(0x200001, found);
  EXPECT_EQ(map->add_user(after, displaced), LiveMap::Added::fresh);
  EXPECT_EQ(displaced.pool, 0);
  EXPECT_EQ(displaced.units, 512u);
  map->begin_drop(0x200001, found);
  EXPECT_EQ(map->finish_drop(before), 0u) << "a late free of the block that was there";
  map->abandon_drop(before);
  EXPECT_EQ(map->finish_drop(after), 512u);
}

// Its importers keep its memory, and the driver makes a new chunk at the address.
TEST(LiveMapTest, AnExportedChunkThatIsLeavingIsDisplaced) {
  auto map = new_map();
  const Allocation chunk = allocation(0x200001, 4096);
  Allocation displaced, found, entry;
  ASSERT_EQ(map->add_user(chunk, displaced), LiveMap::Added::fresh);
  ASSERT_EQ(map->add_user(chunk, displaced), LiveMap::Added::shared);
  ASSERT_TRUE(map->mark_exported(chunk.key, entry));
  ASSERT_TRUE(map->begin_drop(chunk.key, found));
  EXPECT_EQ(map->add_user(chunk, displaced), LiveMap::Added::shared) << "a user keeps it";
  ASSERT_TRUE(map->begin_drop(chunk.key, found));
  ASSERT_TRUE(map->begin_drop(chunk.key, found));
  ASSERT_EQ(displaced.key, 0u);
  EXPECT_EQ(map->add_user(chunk, displaced), LiveMap::Added::fresh);
  EXPECT_EQ(displaced.key, chunk.key);
  EXPECT_TRUE(displaced.exported);
  EXPECT_EQ(map->finish_drop(found), 0u) << "what left is displaced";
  ASSERT_TRUE(map->begin_drop(chunk.key, found));
  EXPECT_FALSE(found.exported);
  EXPECT_EQ(map->finish_drop(found), 4096u);
}

TEST(LiveMapTest, WhatLiesInALeavingChunkIsNoPartOfIt) {
  auto map = new_map();
  Allocation displaced, found;
  map->add_user(allocation(0x200001, 512), displaced);
  ASSERT_TRUE(map->begin_drop(0x200001, found));
  map->add(allocation(0x201000, 3), displaced);  // its addresses are used again already
  EXPECT_FALSE(map->begin_drop(0x200001, found));
  ASSERT_TRUE(map->take(0x201000, found));
  EXPECT_EQ(found.units, 3u);
  EXPECT_EQ(map->finish_drop(allocation(0x200001, 512)), 512u);
}

TEST(LiveMapTest, AReleaseTakesTheWholeAllocationOrElseAPartOfTheChunk) {
  for (const uint64_t address : {0x400000, 0x401000}) {
    auto map = new_map();
    Allocation displaced, found;
    map->add_user(allocation(0x400001, 4096), displaced);
    map->add(allocation(address, 3), displaced);
    ASSERT_TRUE(map->take_or_begin_drop(address, 0x400001, found));
    EXPECT_EQ(found.key, address);
    ASSERT_TRUE(map->take_or_begin_drop(address, 0x400001, found));
    EXPECT_EQ(found.key, 0x400001u);
    EXPECT_FALSE(map->take_or_begin_drop(address, 0x400001, found)) << "its only user is leaving";
    map->add(allocation(address, 4), displaced);
    ASSERT_TRUE(map->take_or_begin_drop(address, 0x400001, found));
    EXPECT_EQ(found.units, 4u);
    EXPECT_EQ(map->finish_drop(allocation(0x400001, 4096)), 4096u);
    EXPECT_EQ(map->check_invariants(), "");
  }
}

TEST(LiveMapTest, StillCountsWhatIsNotLeaving) {
  auto map = new_map();
  Allocation displaced, found;
  const auto units = [&] { return LiveMap::LockedView(*map).units(0); };
  const auto changes = [&] { return LiveMap::LockedView(*map).changes(); };
  map->add(allocation(0x200000, 100), displaced);
  map->add_user(allocation(0x400001, 4096), displaced);
  EXPECT_EQ(units(), 4196u);
  EXPECT_EQ(LiveMap::LockedView(*map).units(1), 0u);
  const uint64_t before = changes();
  map->begin_drop(0x400001, found);
  EXPECT_EQ(units(), 100u);
  map->add_user(allocation(0x400001, 4096), displaced);
  EXPECT_EQ(units(), 4196u) << "a new part keeps the chunk";
  map->finish_drop(allocation(0x400001, 4096));
  map->begin_drop(0x400001, found);
  map->abandon_drop(allocation(0x400001, 4096));
  EXPECT_EQ(units(), 4196u);
  EXPECT_GT(changes(), before);
  map->take(0x200000, found);
  map->take_context(1, [](const Allocation&) {});
  EXPECT_EQ(units(), 0u);
}

TEST(LiveMapTest, CountsEveryUserOfAChunk) {
  auto map = new_map();
  Allocation displaced, found;
  Allocation elsewhere = allocation(0x800000, 100, 2);
  elsewhere.device_index = 1;
  for (uint64_t key = 0x1000000; key < 0x3000000; key += 0x200000) {
    map->add(allocation(key, 4096), displaced);  // all over the shards
  }
  map->add(allocation(0x1000000, 4096), displaced);  // the same address again
  map->add(elsewhere, displaced);
  for (int i = 0; i < 3; ++i) map->add_user(allocation(0x400001, 4096), displaced);
  EXPECT_EQ(map->count(0), 19u);
  EXPECT_EQ(map->count(1), 1u);
  map->begin_drop(0x400001, found);
  EXPECT_EQ(map->count(0), 19u) << "it is there until the driver has freed it";
  map->finish_drop(allocation(0x400001, 4096));
  EXPECT_EQ(map->count(0), 18u);
  map->take(0x1200000, found);
  EXPECT_EQ(map->count(0), 17u);
  map->add(found, displaced);
  EXPECT_EQ(map->count(0), 18u) << "the driver refused to free it";
  map->take_context(1, [](const Allocation&) {});
  EXPECT_EQ(map->count(0), 0u);
  EXPECT_EQ(map->count(1), 1u);
}

TEST(LiveMapTest, TakesOutExactlyOneContext) {
  auto map = new_map();
  Allocation displaced;
  for (uint64_t i = 1; i <= 50000; ++i) {
    map->add(allocation(i * 512, 1, static_cast<uint16_t>(i % 3 + 1)), displaced);
  }
  std::map<uint64_t, int> seen;
  map->take_context(2, [&](const Allocation& entry) {
    EXPECT_EQ(entry.context, 2);
    ++seen[entry.key];
  });
  for (uint64_t i = 1; i <= 50000; ++i) {
    Allocation taken;
    EXPECT_EQ(seen.count(i * 512), i % 3 + 1 == 2 ? 1u : 0u);
    EXPECT_EQ(map->take(i * 512, taken), i % 3 + 1 != 2);
  }
}

TEST(LiveMapTest, AMillionEntries) {
  auto map = new_map();
  Allocation displaced, taken;
  for (uint64_t i = 1; i <= 1000000; ++i) {
    ASSERT_EQ(map->add(allocation(i << 12, static_cast<uint32_t>(i)), displaced),
              LiveMap::Added::fresh);
  }
  EXPECT_EQ(map->check_invariants(), "");
  for (uint64_t i = 1; i <= 1000000; ++i) {
    ASSERT_TRUE(map->take(i << 12, taken));
    ASSERT_EQ(taken.units, i);
  }
}

TEST(LiveMapTest, ThreadsDoNotDisturbEachOther) {
  auto map = new_map();
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Allocation displaced, taken;
      for (int round = 0; round < 20; ++round) {
        for (uint64_t i = 1; i <= 2000; ++i) {
          map->add(allocation((i * 4 + t) << 21, static_cast<uint32_t>(i)), displaced);
        }
        for (uint64_t i = 1; i <= 2000; ++i) {
          ASSERT_TRUE(map->take((i * 4 + t) << 21, taken));
          ASSERT_EQ(taken.units, i);
        }
      }
    });
  }
  for (int looks = 0; looks < 20; ++looks) EXPECT_EQ(map->check_invariants(), "");
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(map->check_invariants(), "");
}

// Chunks with users that come, leave and change their minds, in two contexts.
TEST(LiveMapTest, IsSoundWhateverUsersDo) {
  auto map = new_map();
  std::mt19937_64 random(13);
  std::vector<Allocation> leaving;
  for (int i = 0; i < 20000; ++i) {
    const uint64_t key = (random() % 300 + 1) << 21 | 1;
    Allocation displaced, found;
    switch (random() % 5) {
      case 0:
      case 1:
        map->add_user(allocation(key, 4096, static_cast<uint16_t>(random() % 8 == 0 ? 2 : 1)),
                      displaced);
        break;
      case 2:
        if (map->begin_drop(key, found)) leaving.push_back(found);
        break;
      case 3:
        if (leaving.empty()) break;
        map->finish_drop(leaving.back());
        leaving.pop_back();
        break;
      default:
        if (leaving.empty()) break;
        map->abandon_drop(leaving.back());
        leaving.pop_back();
    }
    if (i % 1000 == 0) {
      ASSERT_EQ(map->check_invariants(), "") << i;
    }
  }
  map->take_context(2, [](const Allocation&) {});
  EXPECT_EQ(map->check_invariants(), "");
}

TEST(LiveMapTest, EachBrokenInvariantIsFound) {
  constexpr uint64_t kKey = 0x400000;
  const auto shard = [](LiveMap & map) -> auto& {
    return TableCorrupter::shard_of(map, kKey);
  };
  const auto entry = [&](LiveMap& map) -> Allocation& { return *shard(map).table.find(kKey); };
  const std::map<std::string, std::function<void(LiveMap&)>> corruptions = {
      {"every allocation is on a device that was added",
       [&](LiveMap& map) { entry(map).device_index = layout::kMaxDevices; }},
      {"every allocation is on a device that was added",
       [&](LiveMap& map) { entry(map).device_index = 7; }},
      {"every allocation has a user", [&](LiveMap& map) { entry(map).users = 0; }},
      {"no more users are leaving than there are", [&](LiveMap& map) { entry(map).leaving = 2; }},
      {"a device's sum is that of its entries",
       [&](LiveMap& map) { ++shard(map).sums[0].units_and_users; }},
      {"a device's managed units are those of its entries",
       [&](LiveMap& map) { ++shard(map).sums[0].managed; }},
      {"every allocation is in the shard of its key",
       [&](LiveMap& map) {
         // A key of another shard.
         uint64_t elsewhere = kKey;
         while (&TableCorrupter::shard_of(map, elsewhere) == &shard(map)) elsewhere += 1u << 26;
         Allocation copy = entry(map);
         copy.key = elsewhere;
         *shard(map).table.insert(elsewhere) = copy;
         shard(map).sums[0].units_and_users *= 2;
       }},
      {"a leaf counts its entries", [&](LiveMap& map) { entry(map).key = 0; }},
  };
  for (const auto& [broken, corrupt] : corruptions) {
    auto map = new_map();
    Allocation displaced;
    map->add(allocation(kKey, 100), displaced);
    ASSERT_EQ(map->check_invariants(), "");
    corrupt(*map);
    EXPECT_EQ(map->check_invariants(), broken);
  }
}

}  // namespace
}  // namespace fracgpu
