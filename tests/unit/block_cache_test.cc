// The rule by which ROCr keeps empty blocks, against a model that does what its public source says:
// a list of empty blocks and the bytes of those in use.
#include "shim/tracking/block_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

namespace fracgpu {
namespace {

// Less than the time for which threads wait for each other, also on a machine under load.
void let_others_run() {
  using std::chrono::steady_clock;
  const auto end = steady_clock::now() + std::chrono::milliseconds(20);
  while (steady_clock::now() < end) std::this_thread::yield();
}

struct Model {
  uint64_t in_use_bytes = 0;
  std::vector<uint64_t> empty;
  static constexpr uint64_t kBlock = 2u << 20;

  uint32_t left() {
    in_use_bytes -= kBlock;
    empty.push_back(kBlock);
    uint32_t released = 0;
    while (empty.size() > 1 && empty.size() * kBlock > in_use_bytes * 2) {
      empty.pop_back();
      ++released;
    }
    return released;
  }
};

TEST(BlockCacheTest, KeepsAsManyAsTheRuntime) {
  BlockCache cache;
  Model model;
  uint32_t in_use = 0;
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    const bool grow = in_use == 0 || random() % 100 < (i / 2000 % 2 == 0 ? 60u : 40u);
    if (grow) {
      const bool whole = random() % 8 == 0;
      const BlockCache::Ticket begun = cache.begin(whole);
      const bool taken = begun.from_empty;
      ASSERT_EQ(taken, !whole && !model.empty.empty());
      if (random() % 4 == 0) {
        ASSERT_EQ(cache.shared(begun), taken) << "it found room in a block that is in use";
        continue;
      }
      if (taken) {
        cache.filled();
        model.empty.pop_back();
      }
      model.in_use_bytes += Model::kBlock;
      ++in_use;
    } else {
      ASSERT_EQ(cache.emptied(), model.left()) << i;
      --in_use;
    }
    ASSERT_EQ(cache.empty_blocks().blocks, model.empty.size()) << i;
  }
}

TEST(BlockCacheTest, WhatTheTruthSaysIsGone) {
  BlockCache cache;
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(cache.begin(false).from_empty);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(cache.emptied(), 0u);
  EXPECT_EQ(cache.empty_blocks().blocks, 2u);
  EXPECT_TRUE(cache.forget(cache.empty_blocks(), 1));
  EXPECT_EQ(cache.empty_blocks().blocks, 1u);
  const BlockCache::EmptyBlocks seen = cache.empty_blocks();
  const BlockCache::Ticket begun = cache.begin(false);
  EXPECT_TRUE(begun.from_empty);
  EXPECT_TRUE(cache.shared(begun));
  EXPECT_FALSE(cache.forget(seen, 1)) << "the runtime may have made the block anew";
  EXPECT_EQ(cache.empty_blocks().blocks, 1u);
  EXPECT_TRUE(cache.forget(cache.empty_blocks(), 9)) << "no more than there are";
  EXPECT_FALSE(cache.begin(false).from_empty);
}

// Each allocation gets a block of its own, for which the runtime's request is seen.
void allocate_seen_blocks(BlockCache& cache, int number) {
  for (int i = 0; i < number; ++i) {
    cache.begin(false);
    cache.got();
    cache.placed();
  }
}

// By its own rule the runtime would keep two empty blocks of three. It was seen to return one.
TEST(BlockCacheTest, WhatWasSeenToGoIsGone) {
  BlockCache cache;
  allocate_seen_blocks(cache, 3);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(cache.emptied(), 0u);
  EXPECT_EQ(cache.take_returned(), 0u);
  const BlockCache::Ticket begun = cache.begin(true);
  EXPECT_EQ(cache.take_returned(), 0u) << "it may get a block yet";
  cache.returned();
  EXPECT_EQ(cache.take_returned(), 1u);
  EXPECT_EQ(cache.take_returned(), 0u);
  EXPECT_EQ(cache.empty_blocks().blocks, 1u);
  cache.cancel(begun);
  EXPECT_EQ(cache.take_returned(), 0u);
}

TEST(BlockCacheTest, OnlyWhatWasSeenToGoMayBeGone) {
  BlockCache cache;
  allocate_seen_blocks(cache, 3);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(cache.emptied(), 0u);
  EXPECT_EQ(cache.empty_blocks().may_be_gone, 0u);
  cache.returned();
  EXPECT_EQ(cache.empty_blocks().may_be_gone, 1u);
  EXPECT_TRUE(cache.forget(cache.empty_blocks(), 1));
  EXPECT_EQ(cache.empty_blocks().may_be_gone, 0u);
  cache.begin(true);
  cache.got(false);
  cache.placed();
  EXPECT_EQ(cache.empty_blocks().may_be_gone, 1u) << "a block was not remembered";
}

TEST(BlockCacheTest, ADiscardedBlockHidesWhatIsGone) {
  BlockCache cache;
  allocate_seen_blocks(cache, 2);
  EXPECT_EQ(cache.emptied(), 0u);
  EXPECT_EQ(cache.empty_blocks().may_be_gone, 0u);
  cache.discarded(false);
  EXPECT_EQ(cache.empty_blocks().may_be_gone, 1u);
}

TEST(BlockCacheTest, ABlockThatIsSetApartCountsUntilItWasSeenToGo) {
  BlockCache cache;
  allocate_seen_blocks(cache, 3);
  for (int i = 0; i < 2; ++i) cache.set_apart();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(cache.emptied_apart(), 0u);
  EXPECT_EQ(cache.take_returned(), 0u);
  cache.returned();
  EXPECT_EQ(cache.take_returned(), 1u);
  EXPECT_EQ(cache.take_returned(), 0u) << "the runtime still has the other";
  EXPECT_EQ(cache.empty_blocks().blocks, 0u) << "no allocation may use it";
}

TEST(BlockCacheTest, WhatIsDiscardedApartIsTakenFromNoOther) {
  BlockCache cache;
  allocate_seen_blocks(cache, 2);
  EXPECT_EQ(cache.emptied(), 0u);
  cache.set_apart();
  cache.discarded(true);
  cache.returned();
  EXPECT_EQ(cache.take_returned(), 0u);
  EXPECT_EQ(cache.empty_blocks().blocks, 1u);
}

TEST(BlockCacheTest, ABlockThatIsSetApartGoesWhenItIsEmptyWhereNothingIsSeen) {
  BlockCache cache;
  cache.begin(false);
  cache.placed();
  cache.set_apart();
  EXPECT_EQ(cache.emptied_apart(), 1u);
  EXPECT_EQ(cache.take_returned(), 0u);
}

TEST(BlockCacheTest, WhatIsNotSeenFollowsTheRule) {
  BlockCache cache;
  for (int i = 0; i < 3; ++i) {
    cache.begin(false);
    cache.placed();
  }
  for (int i = 0; i < 2; ++i) EXPECT_EQ(cache.emptied(), 0u);
  EXPECT_EQ(cache.take_returned(), 0u);
  EXPECT_EQ(cache.empty_blocks().blocks, 2u);
}

TEST(BlockCacheTest, WhatIsUnderWayMayBeInUse) {
  BlockCache cache;
  for (int i = 0; i < 3; ++i) cache.begin(false);
  // The runtime may have made a block for this one too, and keeps two empty ones therefore.
  const BlockCache::Ticket begun = cache.begin(false);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(cache.emptied(), 0u);
  EXPECT_EQ(cache.emptied(), 1u);
  cache.cancel(begun);
  EXPECT_EQ(cache.empty_blocks().blocks, 2u);
}

// The runtime makes a block for the first thread, whose charge is new, and puts the second one's
// part into it, for which an empty block was set aside. The second is the first to enter the block,
// with the charge of the empty one, which is empty still.
TEST(BlockCacheTest, OneThreadsBlockIsEnteredByAnother) {
  for (const bool second_began_first : {false, true}) {
    BlockCache cache;
    BlockCache::Ticket first, second;
    cache.begin(false);
    if (second_began_first) {
      EXPECT_EQ(cache.emptied(), 0u);
      second = cache.begin(false);
      first = cache.begin(false);
    } else {
      first = cache.begin(false);
      EXPECT_EQ(cache.emptied(), 0u);
      second = cache.begin(false);
    }
    ASSERT_FALSE(first.from_empty);
    ASSERT_TRUE(second.from_empty);
    cache.filled();
    EXPECT_TRUE(cache.shared(first)) << "its charge is that of the empty one now";
    EXPECT_EQ(cache.empty_blocks().blocks, 1u);
    EXPECT_TRUE(cache.begin(false).from_empty);
  }
}

// With nothing set aside meanwhile there can be no doubt.
TEST(BlockCacheTest, WhatWasSetAsideBeforeIsSettled) {
  BlockCache cache;
  cache.begin(false);
  EXPECT_EQ(cache.emptied(), 0u);
  ASSERT_TRUE(cache.begin(false).from_empty);
  cache.filled();
  const BlockCache::Ticket begun = cache.begin(false);
  EXPECT_FALSE(cache.shared(begun));
  EXPECT_EQ(cache.empty_blocks().blocks, 0u);
}

// Nobody begins beside one that wants a hole, and it waits for those that have begun.
TEST(BlockCacheTest, WhoTakesAHoleIsAlone) {
  BlockCache cache;
  cache.begin(false);
  cache.placed();
  BlockCache::Ticket early = cache.begin(false), begun = cache.begin(false);
  std::atomic<bool> entered{false};
  std::thread other([&] {
    EXPECT_TRUE(cache.enter_alone(begun));
    entered = true;
    // Until the next one tries to begin, which it must not manage.
    BlockCache::Ticket later;
    std::atomic<bool> began{false};
    std::thread third([&] {
      later = cache.begin(false);
      began = true;
    });
    let_others_run();
    EXPECT_FALSE(began);
    cache.shared(begun);
    cache.placed();
    cache.leave_alone();
    third.join();
    cache.cancel(later);
  });
  let_others_run();
  EXPECT_FALSE(entered) << "one is under way";
  cache.cancel(early);
  other.join();
}

}  // namespace
}  // namespace fracgpu
