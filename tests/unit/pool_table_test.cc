// The table of pools: random changes against a model, and each invariant broken.
#include "shim/tracking/pool_table.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <random>
#include <thread>

#include "tests/unit/table_corrupter.h"

namespace fracgpu {
namespace {

constexpr PoolDriver kDriver = {.reserved = [](uint64_t, uint64_t&) { return false; },
                                .trim = [](uint64_t) {}};

TEST(PoolTableTest, IsSoundWhateverComesAndGoes) {
  PoolTable table;
  std::map<uint64_t, uint64_t> model;  // units by key
  std::mt19937_64 random(11);
  const auto device_of = [](uint64_t key) { return static_cast<int>(key % 3); };
  for (int step = 0; step < 20000; ++step) {
    const uint64_t key = random() % 60 + 1;
    const bool known = model.count(key) != 0;
    Pool pool;
    switch (random() % 5) {
      case 0:
        ASSERT_TRUE(table.add(key, device_of(key), kDriver));
        model.try_emplace(key, 0);
        break;
      case 1:
        ASSERT_EQ(table.remove(key, pool), known);
        if (known && random() % 4 == 0) {
          table.put_back(pool);
        } else {
          model.erase(key);
        }
        break;
      case 2:
        if (table.begin_use(key, pool)) table.end_use(pool);
        break;
      case 3:
        table.mark_exported(key, false, pool);
        break;
      default:
        ASSERT_EQ(table.begin_use(key, pool), known);
        if (!known) break;
        model[key] = random() % 1000;
        ASSERT_TRUE(table.end_use(pool, model[key], model[key], 0).is_done);
    }
    if (step % 100 == 0) {
      ASSERT_EQ(table.check_invariants(), "") << step;
    }
  }
  EXPECT_EQ(table.check_invariants(), "");
  for (int device = 0; device < 3; ++device) {
    uint64_t expected = 0, units = 0, changes = 0;
    for (const auto& [key, charged] : model) expected += device_of(key) == device ? charged : 0;
    table.sum(device, units, changes);
    EXPECT_EQ(units, expected);
  }
}

// On a crowded machine a thread may be in the driver for long, sure of what the pool has.
TEST(PoolTableTest, NobodyAllocatesBesideOneThatIsSure) {
  constexpr int kLong = 400'000;
  PoolTable table;
  ASSERT_TRUE(table.add(1, 0, kDriver));
  Pool sure;
  ASSERT_TRUE(table.begin_reuse(1, sure));
  std::atomic<bool> done = false;
  std::thread other([&] {
    Pool pool;
    EXPECT_EQ(table.begin_allocation(1, pool), PoolTable::Access::granted);
    EXPECT_TRUE(done);
    table.end_use(pool);
  });
  // The other one waits for ten seconds, which many yields may take on a crowded machine.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(4);
  for (int i = 0; i < kLong && std::chrono::steady_clock::now() < end; ++i) sched_yield();
  done = true;
  table.end_use(sure);
  other.join();
  Pool pool;
  EXPECT_EQ(table.begin_allocation(2, pool), PoolTable::Access::unknown);
}

TEST(PoolTableTest, EachBrokenInvariantIsFound) {
  const std::map<std::string, std::function<void(PoolTable&, Pool&)>> corruptions = {
      {"the pool count that is read without the lock is that of the table",
       [](PoolTable& table, Pool&) { ++TableCorrupter::count(table); }},
      {"every pool has a driver to ask about it",
       [](PoolTable&, Pool& pool) { pool.driver = nullptr; }},
      {"every pool is on a device of the ledger",
       [](PoolTable&, Pool& pool) { pool.device_index = -1; }},
      {"no use of a pool ends that has not begun", [](PoolTable&, Pool& pool) { --pool.users; }},
      {"a hash table counts its entries", [](PoolTable&, Pool& pool) { pool.key = 0; }},
  };
  for (const auto& [broken, corrupt] : corruptions) {
    PoolTable table;
    table.add(1, 0, kDriver);
    table.add(2, 1, kDriver);
    ASSERT_EQ(table.check_invariants(), "");
    corrupt(table, *TableCorrupter::pools(table).find(2));
    EXPECT_EQ(table.check_invariants(), broken);
  }
}

}  // namespace
}  // namespace fracgpu
