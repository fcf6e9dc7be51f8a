// What is known of the holes in a chunk, against an array of units; and the gate by which an
// allocation that relies on a hole is alone.
#include "shim/tracking/chunk_occupancy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "shim/base/gate.h"
#include "shim/tracking/live_map.h"

namespace fracgpu {
namespace {

constexpr uint32_t kUnits = ChunkOccupancy::kUnits;

// A chunk as a plain array: which units are taken.
class Model {
 public:
  bool is_free(uint32_t first, uint32_t units) const {
    return std::none_of(taken_.begin() + first, taken_.begin() + first + units,
                        [](bool taken) { return taken; });
  }
  void set(uint32_t first, uint32_t units, bool taken) {
    std::fill_n(taken_.begin() + first, units, taken);
  }
  uint32_t largest_hole() const {
    uint32_t largest = 0, run = 0;
    for (const bool taken : taken_) {
      run = taken ? 0 : run + 1;
      largest = std::max(largest, run);
    }
    return largest;
  }

 private:
  std::vector<bool> taken_ = std::vector<bool>(kUnits);
};

TEST(ChunkOccupancyTest, AgreesWithAModel) {
  std::mt19937 random(11);
  for (int chunk = 0; chunk < 60; ++chunk) {
    ChunkOccupancy occupancy;
    Model model;
    std::map<uint32_t, uint32_t> live;  // units by the first one
    const uint32_t most = 1u << (chunk % 12 + 1);
    for (int step = 0; step < 2000; ++step) {
      const auto first = static_cast<uint32_t>(random() % kUnits);
      const uint32_t units = std::min(static_cast<uint32_t>(random() % most) + 1, kUnits - first);
      if (random() % 2 == 0 && model.is_free(first, units)) {
        occupancy.take({first, units});
        model.set(first, units, true);
        live[first] = units;
      } else if (!live.empty()) {
        auto gone = live.lower_bound(first);
        if (gone == live.end()) gone = live.begin();
        occupancy.release(gone->first);
        model.set(gone->first, gone->second, false);
        live.erase(gone);
      }
      const uint32_t largest = model.largest_hole();
      ASSERT_TRUE(largest == 0 || occupancy.has_hole(largest)) << chunk << " " << step;
      ASSERT_FALSE(largest < kUnits && occupancy.has_hole(largest + 1)) << chunk << " " << step;
    }
    for (const auto& [first, units] : live) occupancy.release(first);
    EXPECT_TRUE(occupancy.has_hole(kUnits)) << "something stayed taken";
  }
}

TEST(ChunkOccupancyTest, ReleaseOfWhatDoesNotBeginThereChangesNothing) {
  ChunkOccupancy occupancy;
  occupancy.take({0, kUnits});
  occupancy.release(1);
  occupancy.release(kUnits - 1);
  EXPECT_FALSE(occupancy.has_hole(1));
  occupancy.release(0);
  EXPECT_TRUE(occupancy.has_hole(kUnits));
  occupancy.release(0);
  EXPECT_TRUE(occupancy.has_hole(kUnits));
}

// The driver has freed a part and given it out again before the first release is told.
TEST(ChunkOccupancyTest, ALateReleaseIsNotTheNewOnes) {
  ChunkOccupancy occupancy;
  occupancy.take({0, 100});
  occupancy.take({0, 40});
  occupancy.release(0);
  EXPECT_FALSE(occupancy.has_hole(kUnits - 39)) << "the new one is there";
  occupancy.release(0);
  EXPECT_TRUE(occupancy.has_hole(kUnits));
}

TEST(ChunkOccupancyTest, APartThatWasGivenOutAgainTwiceIsNotReliedOn) {
  ChunkOccupancy occupancy;
  for (int i = 0; i < 3; ++i) occupancy.take({0, 100});
  EXPECT_FALSE(occupancy.has_hole(1));
  for (int i = 0; i < 3; ++i) occupancy.release(0);
  EXPECT_FALSE(occupancy.has_hole(1));
}

TEST(ChunkOccupancyTest, HoldsWhatLiesInOneChunk) {
  EXPECT_TRUE(ChunkOccupancy::holds({0, kUnits}));
  EXPECT_TRUE(ChunkOccupancy::holds({kUnits - 1, 1}));
  EXPECT_FALSE(ChunkOccupancy::holds({kUnits - 1, 2}));
  EXPECT_FALSE(ChunkOccupancy::holds({kUnits, 0}));
}

// Of each of many chunks at once, as they have no part, one or more of them.
TEST(ChunkOccupanciesTest, AgreeWithAModel) {
  struct Chunk {
    uint32_t number = ChunkOccupancies::of_one({});
    Model model;
    std::map<uint32_t, uint32_t> live;  // units by the first one
  };
  const auto all = std::make_unique<ChunkOccupancies>();
  std::mt19937 random(12);
  std::vector<Chunk> chunks(40);
  for (int step = 0; step < 40'000; ++step) {
    Chunk& chunk = chunks[random() % chunks.size()];
    const auto first = static_cast<uint32_t>(random() % kUnits);
    const uint32_t units = std::min(static_cast<uint32_t>(random() % kUnits) + 1, kUnits - first);
    if (random() % 100 == 0) {
      all->drop(chunk.number);
      chunk = Chunk();
    } else if (random() % 2 == 0 && chunk.model.is_free(first, units)) {
      all->take(chunk.number, {first, units});
      chunk.model.set(first, units, true);
      chunk.live[first] = units;
    } else if (!chunk.live.empty()) {
      const auto gone = chunk.live.begin();
      all->release(chunk.number, gone->first);
      chunk.model.set(gone->first, gone->second, false);
      chunk.live.erase(gone);
    }
    ASSERT_NE(chunk.number, ChunkOccupancies::kNone);
    const uint32_t largest = chunk.model.largest_hole();
    ASSERT_TRUE(largest == 0 || all->has_hole(chunk.number, largest)) << step;
    ASSERT_FALSE(all->has_hole(chunk.number, largest + 1)) << step;
  }
}

TEST(ChunkOccupanciesTest, ALateReleaseIsNotTheNewOnes) {
  const auto all = std::make_unique<ChunkOccupancies>();
  uint32_t number = ChunkOccupancies::of_one({0, 100});
  all->release(number, 1);
  EXPECT_FALSE(all->has_hole(number, kUnits - 99)) << "nothing begins there";
  all->take(number, {0, 40});
  all->release(number, 0);
  EXPECT_FALSE(all->has_hole(number, kUnits - 39)) << "the new one is there";
  all->release(number, 0);
  EXPECT_TRUE(all->has_hole(number, kUnits));
}

TEST(ChunkOccupanciesTest, MapsAreUsedAgainAndBeginEmpty) {
  const auto all = std::make_unique<ChunkOccupancies>();
  const auto make_full = [&] {
    uint32_t number = ChunkOccupancies::of_one({0, kUnits / 2});
    all->take(number, {kUnits / 2, kUnits / 2});
    return number;
  };
  std::vector<uint32_t> numbers;
  for (int i = 0; i < 3000; ++i) {
    numbers.push_back(make_full());
    ASSERT_NE(numbers.back(), ChunkOccupancies::kNone);
    ASSERT_FALSE(all->has_hole(numbers.back(), 1));
  }
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), numbers.front()), 1);
  all->drop(numbers[1234]);
  all->drop(ChunkOccupancies::kNone);
  uint32_t again = ChunkOccupancies::of_one({0, 1});
  all->take(again, {1, 1});
  EXPECT_EQ(again, numbers[1234]);
  EXPECT_TRUE(all->has_hole(again, kUnits - 2));
  EXPECT_FALSE(all->has_hole(ChunkOccupancies::kNone, 1));
}

class HolesTest : public testing::Test {
 protected:
  static constexpr uint64_t kChunk = uint64_t{2} << 20;

  HolesTest() { map_->add_device(0); }

  static Allocation chunk(uint64_t number, uint16_t context = 1, bool managed = false) {
    return {.key = number * kChunk | 1,
            .units = kUnits,
            .users = 1,
            .context = context,
            .device_index = 0,
            .managed = managed};
  }
  LiveMap::Added add(const Allocation& chunk, uint32_t first, uint32_t units) {
    Allocation displaced;
    return map_->add_user(chunk, displaced, {first, units});
  }
  uint32_t drop(const Allocation& chunk, uint32_t first, bool lingers = false) {
    Allocation found;
    EXPECT_TRUE(map_->begin_drop(chunk.key, found));
    return map_->finish_drop(found, nullptr, lingers, first);
  }

  const std::unique_ptr<LiveMap> map_ = std::make_unique<LiveMap>();
};

TEST_F(HolesTest, AreThoseOfChunksOfTheSameKind) {
  EXPECT_FALSE(map_->has_hole(chunk(0), 1));
  add(chunk(7), 0, kUnits - 10);
  EXPECT_TRUE(map_->has_hole(chunk(0), 10));
  EXPECT_FALSE(map_->has_hole(chunk(0), 11));
  EXPECT_FALSE(map_->has_hole(chunk(0, 2), 10)) << "of another context";
  EXPECT_FALSE(map_->has_hole(chunk(0, 1, true), 10)) << "managed memory has chunks of its own";
  add(chunk(1000), 100, 200);
  EXPECT_TRUE(map_->has_hole(chunk(0), kUnits - 300));
  EXPECT_FALSE(map_->has_hole(chunk(0), kUnits - 299));
}

TEST_F(HolesTest, GoWithTheirChunk) {
  add(chunk(7), 0, 100);
  add(chunk(7), 100, 100);
  EXPECT_EQ(drop(chunk(7), 0), 0u);
  EXPECT_FALSE(map_->has_hole(chunk(0), kUnits - 199));
  EXPECT_TRUE(map_->has_hole(chunk(0), kUnits - 200));
  Allocation leaving;
  EXPECT_TRUE(map_->begin_drop(chunk(7).key, leaving));
  EXPECT_FALSE(map_->has_hole(chunk(0), 1)) << "the driver may give the chunk back at any moment";
  map_->abandon_drop(leaving);
  EXPECT_TRUE(map_->has_hole(chunk(0), 1));
  EXPECT_EQ(drop(chunk(7), 100), kUnits);
  EXPECT_FALSE(map_->has_hole(chunk(0), 1));
}

TEST_F(HolesTest, AreNotReliedOnWhereAPartIsFreedAtAnUnknownMomentOrExported) {
  add(chunk(7), 0, 100);
  add(chunk(7), 100, 100);
  drop(chunk(7), 0, true);
  EXPECT_FALSE(map_->has_hole(chunk(0), 1));
  add(chunk(8), 0, 100);
  EXPECT_TRUE(map_->has_hole(chunk(0), 1));
  Allocation entry;
  map_->mark_exported(chunk(8).key, entry);
  EXPECT_FALSE(map_->has_hole(chunk(0), 1));
}

// Who relies on a hole keeps the chunk's charge, whoever frees what is in it meanwhile.
TEST_F(HolesTest, APinnedChunkKeepsItsCharge) {
  Allocation pinned;
  EXPECT_FALSE(map_->pin_hole(chunk(0), 1, pinned));
  add(chunk(7), 0, 100);
  ASSERT_TRUE(map_->pin_hole(chunk(0), kUnits - 100, pinned));
  EXPECT_EQ(pinned.key, chunk(7).key);
  EXPECT_EQ(drop(chunk(7), 0), 0u) << "its charge is not given back";
  EXPECT_EQ(drop(chunk(7), ChunkPart::kNowhere), kUnits);
  EXPECT_EQ(map_->check_invariants(), "");
}

TEST_F(HolesTest, AnAllocationAcrossTwoChunksIsNotTracked) {
  add(chunk(7), kUnits - 1, 2);
  EXPECT_FALSE(map_->has_hole(chunk(0), 1));
  add(chunk(8), 0, 1);
  EXPECT_TRUE(map_->has_hole(chunk(0), 1));
  EXPECT_EQ(add(chunk(8), kUnits - 1, kUnits), LiveMap::Added::shared);
  EXPECT_FALSE(map_->has_hole(chunk(0), 1)) << "nothing is certain there any more";
  EXPECT_EQ(drop(chunk(8), 0), 0u);
  EXPECT_EQ(drop(chunk(8), kUnits - 1), kUnits);
}

TEST_F(HolesTest, OfAContextThatEndedAreForgotten) {
  for (uint64_t i = 1; i < 100; ++i) add(chunk(i), 0, 1);
  map_->take_context(1, [](const Allocation&) {});
  EXPECT_FALSE(map_->has_hole(chunk(0), 1));
  // The chunk is another context's now.
  add(chunk(1), 0, 1);
  add(chunk(1, 2), 0, kUnits);
  EXPECT_FALSE(map_->has_hole(chunk(0), 1));
  EXPECT_FALSE(map_->has_hole(chunk(0, 2), 1));
}

TEST(GateTest, WhoClosesItIsAlone) {
  Gate gate;
  std::atomic<int> inside{0}, seen{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!stop.load()) {
        gate.enter();
        ++inside;
        --inside;
        gate.leave();
      }
    });
  }
  int closed = 0;
  for (int i = 0; i < 2000; ++i) {
    if (!gate.close()) continue;
    ++closed;
    if (inside.load() != 0) ++seen;
    gate.enter();  // by what the closing thread calls
    gate.leave();
    gate.open();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen.load(), 0) << "another thread was inside";
  EXPECT_GT(closed, 0);
}

TEST(GateTest, StaysOpenWhereAThreadDoesNotComeOut) {
  Gate gate;
  std::atomic<int> step{0};
  std::thread slow([&] {
    gate.enter();
    step = 1;
    step.notify_all();
    step.wait(1);
    gate.leave();
  });
  step.wait(0);
  EXPECT_FALSE(gate.close());
  gate.enter();  // does not wait
  gate.leave();
  step = 2;
  step.notify_all();
  slow.join();
  EXPECT_TRUE(gate.close());
  gate.open();
}

}  // namespace
}  // namespace fracgpu
