// The holes that pools are sure to use again, judged by a list of what was freed where.
#include "shim/tracking/pool_blocks.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace fracgpu {
namespace {

constexpr uint64_t kPool = 0x1000, kOther = 0x2000, kMiB = 1u << 20;
constexpr uint64_t kStream = 0x10, kSecond = 0x20;

class PoolBlocksTest : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(blocks_.check_invariants(), ""); }

  void free(uint64_t address, uint64_t stream) {
    const uint64_t number = blocks_.begin_free(address);
    ASSERT_NE(number, 0u);
    blocks_.end_free(address, number, stream, 1);
  }

  PoolBlocks blocks_;
};

TEST_F(PoolBlocksTest, AHoleIsItsStreamsAlone) {
  blocks_.allocated(kPool, 100 * kMiB, 10 * kMiB, 10 * kMiB);
  EXPECT_FALSE(blocks_.fits(kPool, kStream, 1));
  free(100 * kMiB, kStream);
  EXPECT_TRUE(blocks_.fits(kPool, kStream, 10 * kMiB));
  EXPECT_TRUE(blocks_.fits(kPool, kStream, 1));
  EXPECT_FALSE(blocks_.fits(kPool, kStream, 10 * kMiB + 1));
  EXPECT_FALSE(blocks_.fits(kPool, kSecond, 1)) << "another stream may come before the free";
  EXPECT_FALSE(blocks_.fits(kOther, kStream, 1));
}

TEST_F(PoolBlocksTest, AHoleOfAPoolThatIsWholeIsTaken) {
  const auto take = [&](uint64_t pool, uint64_t address, uint64_t bytes, uint64_t reserved) {
    return blocks_.take_hole(pool, address, bytes, reserved);
  };
  blocks_.allocated(kPool, 64 * kMiB, 20 * kMiB, 32 * kMiB, 32 * kMiB);
  EXPECT_FALSE(take(kPool, 64 * kMiB, 20 * kMiB, 32 * kMiB)) << "it is in use";
  EXPECT_FALSE(take(kPool, 84 * kMiB, 12 * kMiB, 32 * kMiB)) << "nobody has freed it";
  free(64 * kMiB, kStream);
  EXPECT_FALSE(take(kOther, 64 * kMiB, 20 * kMiB, 32 * kMiB));
  EXPECT_FALSE(take(kPool, 65 * kMiB, 10 * kMiB, 32 * kMiB)) << "it begins elsewhere";
  EXPECT_FALSE(take(kPool, 64 * kMiB, 10 * kMiB, 32 * kMiB)) << "only a part of it";
  EXPECT_FALSE(take(kPool, 64 * kMiB, 20 * kMiB, 31 * kMiB)) << "less than the pool's addresses";
  EXPECT_TRUE(take(kPool, 64 * kMiB, 20 * kMiB - 511, 32 * kMiB));
  EXPECT_FALSE(blocks_.has_hole(kStream));
  EXPECT_FALSE(take(kPool, 64 * kMiB, 20 * kMiB, 32 * kMiB)) << "a second time";
  free(64 * kMiB, kStream);
  EXPECT_FALSE(blocks_.fits(kPool, kStream, 20 * kMiB)) << "511 bytes less";
  blocks_.forget_holes(kPool);
  EXPECT_FALSE(take(kPool, 64 * kMiB, 20 * kMiB, 32 * kMiB));
}

// As libcuda places blocks: at the lowest addresses that fit, whether or not there is memory.
TEST_F(PoolBlocksTest, APoolIsWholeUntilItGivesMemoryBackBelowWhatIsInUse) {
  EXPECT_FALSE(blocks_.is_whole(kPool, 0)) << "not known";
  blocks_.allocated(kPool, 64 * kMiB, 32 * kMiB, 32 * kMiB, 32 * kMiB);
  blocks_.allocated(kPool, 96 * kMiB, 20 * kMiB, 32 * kMiB, 64 * kMiB);
  EXPECT_TRUE(blocks_.is_whole(kPool, 64 * kMiB));
  EXPECT_FALSE(blocks_.is_whole(kPool, 32 * kMiB)) << "the first chunk may have gone";
  EXPECT_FALSE(blocks_.is_whole(kOther, 64 * kMiB));
  blocks_.forget_holes(kPool);
  // Two chunks more, behind 12 MiB of which nothing is known.
  blocks_.allocated(kPool, 116 * kMiB, 50 * kMiB, 64 * kMiB, 96 * kMiB);
  EXPECT_FALSE(blocks_.is_whole(kPool, 96 * kMiB));
  EXPECT_TRUE(blocks_.is_whole(kPool, 128 * kMiB));
  blocks_.allocated(kPool, 64 * kMiB, 40 * kMiB, 0, 64 * kMiB);
  EXPECT_TRUE(blocks_.is_whole(kPool, 64 * kMiB)) << "there is nothing else";
  blocks_.allocated(kPool, 512 * kMiB, 10 * kMiB, 32 * kMiB, 32 * kMiB);
  EXPECT_TRUE(blocks_.is_whole(kPool, 32 * kMiB));
}

// Each thread has a stream of its own, and nobody tells when it ends.
TEST_F(PoolBlocksTest, WhatIsKnownOfStreamsThatFreedNothingDoesNotGrow) {
  constexpr uint64_t kEvent = 0x30, kThreads = 20'000;
  blocks_.allocated(kPool, 100 * kMiB, 10 * kMiB, 10 * kMiB);
  free(100 * kMiB, kStream);
  blocks_.record(kEvent, kStream, blocks_.moment(), 1);
  blocks_.wait(kSecond, kEvent, 1);
  for (uint64_t thread = 1; thread <= kThreads; ++thread) {
    const uint64_t own = thread << 8 | 1;
    blocks_.record(kEvent, own, blocks_.moment(), 1);
    blocks_.wait(kSecond, kEvent, 1);
    blocks_.record(kEvent, kSecond, blocks_.moment(), 1);
    blocks_.wait(own, kEvent, 1);
  }
  EXPECT_LT(blocks_.pairs(), 1000u);
  EXPECT_TRUE(blocks_.fits_after_event(kPool, kSecond, 10 * kMiB, 1)) << "this one has a hole";
}

TEST_F(PoolBlocksTest, HolesOfAStreamAreGoneWhenItIsForgotten) {
  blocks_.allocated(kPool, 100 * kMiB, 10 * kMiB, 10 * kMiB);
  EXPECT_FALSE(blocks_.has_hole(kStream));
  free(100 * kMiB, kStream);
  EXPECT_TRUE(blocks_.has_hole(kStream));
  EXPECT_FALSE(blocks_.has_hole(kSecond));
  blocks_.forget_stream(kStream);
  EXPECT_FALSE(blocks_.has_hole(kStream));
}

TEST_F(PoolBlocksTest, AStreamThatComesAfterAFreeMayHaveTheHole) {
  constexpr uint64_t kEvent = 0x30, kEpoch = 1;
  const auto fits = [&] { return blocks_.fits_after_event(kPool, kSecond, 10 * kMiB, kEpoch); };
  const auto record = [&](uint64_t event, uint64_t stream) {
    blocks_.record(event, stream, blocks_.moment(), kEpoch);
  };
  blocks_.allocated(kPool, 100 * kMiB, 10 * kMiB, 10 * kMiB);
  record(kEvent, kStream);
  free(100 * kMiB, kStream);
  blocks_.wait(kSecond, kEvent, kEpoch);
  EXPECT_FALSE(fits()) << "it was freed after the event";
  record(kEvent, kStream);
  EXPECT_FALSE(fits()) << "nobody waits for the event as it is now";
  blocks_.wait(kSecond, kEvent, kEpoch);
  EXPECT_TRUE(fits());
  EXPECT_FALSE(blocks_.fits_after_event(kPool, kSecond, 11 * kMiB, kEpoch));
  EXPECT_FALSE(blocks_.fits_after_event(kOther, kSecond, 1, kEpoch));
  EXPECT_FALSE(blocks_.fits_after_event(kPool, 0x40, 1, kEpoch)) << "another stream waits";
  EXPECT_FALSE(blocks_.fits_after_event(kPool, kSecond, 1, kEpoch + 1)) << "a context has ended";
  EXPECT_FALSE(blocks_.fits(kPool, kSecond, 1)) << "the hole is not its own";
  // An event of an earlier place takes nothing back.
  record(0x50, kStream);
  blocks_.wait(kSecond, 0x50, kEpoch);
  EXPECT_TRUE(fits());
  blocks_.forget_stream(kSecond);
  EXPECT_FALSE(fits()) << "the handle means another stream now";
}

TEST_F(PoolBlocksTest, AFreeThatIsUnderWayIsBeforeNoEvent) {
  blocks_.allocated(kPool, 100 * kMiB, 10 * kMiB, 10 * kMiB);
  const uint64_t number = blocks_.begin_free(100 * kMiB);
  blocks_.record(0x30, kStream, blocks_.moment(), 1);
  blocks_.end_free(100 * kMiB, number, kStream, 1);
  blocks_.wait(kSecond, 0x30, 1);
  EXPECT_FALSE(blocks_.fits_after_event(kPool, kSecond, 1, 1)) << "the driver may know it later";
}

TEST_F(PoolBlocksTest, AnEventThatIsGoneMeansNothing) {
  blocks_.allocated(kPool, 100 * kMiB, 10 * kMiB, 10 * kMiB);
  free(100 * kMiB, kStream);
  blocks_.record(0x30, kStream, blocks_.moment(), 1);
  blocks_.forget_event(0x30);
  blocks_.wait(kSecond, 0x30, 1);
  EXPECT_FALSE(blocks_.fits_after_event(kPool, kSecond, 1, 1));
  blocks_.record(0x30, kStream, blocks_.moment(), 1);
  blocks_.wait(kSecond, 0x30, 2);
  EXPECT_FALSE(blocks_.fits_after_event(kPool, kSecond, 1, 2)) << "it went with its context";
}

TEST_F(PoolBlocksTest, WhatIsTakenOfAHoleLeavesTheRest) {
  blocks_.allocated(kPool, 100 * kMiB, 10 * kMiB, 10 * kMiB);
  free(100 * kMiB, kStream);
  blocks_.allocated(kPool, 100 * kMiB, 3 * kMiB, 0);
  EXPECT_TRUE(blocks_.fits(kPool, kStream, 7 * kMiB));
  EXPECT_FALSE(blocks_.fits(kPool, kStream, 8 * kMiB));
  free(100 * kMiB, kStream);
  EXPECT_FALSE(blocks_.fits(kPool, kStream, 8 * kMiB)) << "nothing says that neighbours are joined";
}

TEST_F(PoolBlocksTest, AnAllocationFromNowhereEndsAllPromises) {
  blocks_.allocated(kPool, 100 * kMiB, 10 * kMiB, 10 * kMiB);
  blocks_.allocated(kOther, 300 * kMiB, 10 * kMiB, 10 * kMiB);
  free(100 * kMiB, kStream);
  free(300 * kMiB, kStream);
  blocks_.allocated(kPool, 200 * kMiB, 32 * kMiB, 32 * kMiB);
  EXPECT_TRUE(blocks_.fits(kPool, kStream, 10 * kMiB)) << "the pool has grown for it";
  blocks_.allocated(kPool, 500 * kMiB, 5 * kMiB, 0);
  EXPECT_FALSE(blocks_.fits(kPool, kStream, 1)) << "it may have been made of the hole's memory";
  EXPECT_TRUE(blocks_.fits(kOther, kStream, 10 * kMiB));
}

TEST_F(PoolBlocksTest, MoreThanTheHoleHeldTookItsNeighboursToo) {
  blocks_.allocated(kPool, 100 * kMiB, 10 * kMiB, 10 * kMiB);
  blocks_.allocated(kPool, 110 * kMiB, 10 * kMiB, 10 * kMiB);
  free(100 * kMiB, kStream);
  free(110 * kMiB, kStream);
  blocks_.allocated(kPool, 100 * kMiB, 15 * kMiB, 0);
  EXPECT_FALSE(blocks_.fits(kPool, kStream, 1));
}

TEST_F(PoolBlocksTest, TheRestOfAChunkServesEveryStream) {
  blocks_.allocated(kPool, 100 * kMiB, 10 * kMiB, 32 * kMiB);
  EXPECT_EQ(blocks_.last_tail(kPool), 22 * kMiB);
  EXPECT_TRUE(blocks_.fits(kPool, kStream, 22 * kMiB));
  EXPECT_TRUE(blocks_.fits(kPool, kSecond, 22 * kMiB));
  EXPECT_FALSE(blocks_.fits(kPool, kStream, 22 * kMiB + 1));
  EXPECT_FALSE(blocks_.fits(kOther, kStream, 1));
  EXPECT_EQ(blocks_.allocated(kPool, 110 * kMiB, 5 * kMiB, 0), PoolBlocks::Growth::none);
  EXPECT_EQ(blocks_.last_tail(kPool), 17 * kMiB);
  free(100 * kMiB, kStream);
  EXPECT_EQ(blocks_.last_tail(kPool), 17 * kMiB) << "what was used is a hole of its stream";
  blocks_.forget_holes(kPool);
  EXPECT_EQ(blocks_.last_tail(kPool), 0u);
}

TEST_F(PoolBlocksTest, APoolMayGrowByWhatItsTailLacks) {
  blocks_.allocated(kPool, 100 * kMiB, 10 * kMiB, 32 * kMiB);
  EXPECT_EQ(blocks_.allocated(kPool, 110 * kMiB, 40 * kMiB, 32 * kMiB),
            PoolBlocks::Growth::extended);
  EXPECT_EQ(blocks_.last_tail(kPool), 14 * kMiB);
  EXPECT_EQ(blocks_.allocated(kPool, 20 * kMiB, 40 * kMiB, 64 * kMiB), PoolBlocks::Growth::apart);
  EXPECT_EQ(blocks_.last_tail(kPool), 0u) << "behind that chunk is another one";
  EXPECT_FALSE(blocks_.fits(kPool, kStream, 24 * kMiB)) << "it may be gone unseen";
}

TEST_F(PoolBlocksTest, AFreeThatIsOvertakenMakesNoHole) {
  blocks_.allocated(kPool, 100 * kMiB, 10 * kMiB, 10 * kMiB);
  const uint64_t late = blocks_.begin_free(100 * kMiB);
  EXPECT_EQ(blocks_.begin_free(100 * kMiB), 0u) << "it is being freed already";
  blocks_.allocated(kPool, 100 * kMiB, 10 * kMiB, 0);
  const uint64_t second = blocks_.begin_free(100 * kMiB);
  blocks_.end_free(100 * kMiB, late, kStream, 1);
  EXPECT_FALSE(blocks_.fits(kPool, kStream, 1));
  blocks_.cancel_free(100 * kMiB, second);
  free(100 * kMiB, kSecond);
  EXPECT_TRUE(blocks_.fits(kPool, kSecond, 10 * kMiB));
}

TEST_F(PoolBlocksTest, Forgets) {
  for (uint64_t i = 1; i <= 6; ++i)
    blocks_.allocated(i <= 3 ? kPool : kOther, i * 100 * kMiB, kMiB, kMiB);
  free(100 * kMiB, kStream);
  free(200 * kMiB, kSecond);
  free(400 * kMiB, kStream);
  uint64_t streams[4];
  EXPECT_EQ(blocks_.streams(kPool, 1, streams, 4), 2u);
  EXPECT_EQ(blocks_.streams(kPool, 2, streams, 4), 0u);
  blocks_.forget(300 * kMiB);
  EXPECT_EQ(blocks_.begin_free(300 * kMiB), 0u);
  blocks_.forget_stream(kStream);
  EXPECT_FALSE(blocks_.fits(kPool, kStream, 1));
  EXPECT_FALSE(blocks_.fits(kOther, kStream, 1));
  EXPECT_TRUE(blocks_.fits(kPool, kSecond, 1));
  blocks_.forget_holes(kPool);
  EXPECT_FALSE(blocks_.fits(kPool, kSecond, 1));
  blocks_.forget_pool(kOther);
  EXPECT_EQ(blocks_.begin_free(500 * kMiB), 0u);
  EXPECT_TRUE(blocks_.empty());
}

// A pool that takes the hole again that was freed last, among thousands of blocks.
TEST_F(PoolBlocksTest, KeepsItsListsInOrder) {
  std::mt19937_64 random(20);
  std::map<uint64_t, uint64_t> used, holes;  // sizes by address
  for (uint64_t i = 1; i <= 2000; ++i) {
    used[i * 64 * kMiB] = 512 * (1 + random() % 5000);
    blocks_.allocated(kPool, i * 64 * kMiB, used[i * 64 * kMiB], 64 * kMiB);
  }
  for (int move = 0; move < 20'000; ++move) {
    const bool frees = holes.empty() || (!used.empty() && random() % 2 == 0);
    auto& from = frees ? used : holes;
    auto at = from.lower_bound(random() % (2000 * 64 * kMiB));
    if (at == from.end()) at = from.begin();
    const auto [address, bytes] = *at;
    from.erase(at);
    if (frees) {
      free(address, kStream);
      holes[address] = bytes;
    } else {
      EXPECT_TRUE(blocks_.fits(kPool, kStream, bytes));
      blocks_.allocated(kPool, address, bytes, 0);
      used[address] = bytes;
    }
  }
  EXPECT_EQ(blocks_.check_invariants(), "");
}

}  // namespace
}  // namespace fracgpu
