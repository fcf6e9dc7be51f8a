// The rule by which ROCr keeps empty blocks, against a model that does what its public source says:
// a list of empty blocks and the bytes of those in use.
#include "shim/block_cache.h"

#include <gtest/gtest.h>

#include <random>

namespace fracgpu {
namespace {

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

TEST(BlockCache, KeepsAsManyAsTheRuntime) {
  BlockCache cache;
  Model model;
  uint32_t in_use = 0;
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    const bool grow = in_use == 0 || random() % 100 < (i / 2000 % 2 == 0 ? 60u : 40u);
    if (grow) {
      const bool whole = random() % 8 == 0;
      const bool taken = cache.begin(whole);
      ASSERT_EQ(taken, !whole && !model.empty.empty());
      if (random() % 4 == 0) {
        cache.end(taken);  // it found room in a block that is in use
        continue;
      }
      if (taken) model.empty.pop_back();
      model.in_use_bytes += Model::kBlock;
      ++in_use;
    } else {
      ASSERT_EQ(cache.left(), model.left()) << i;
      --in_use;
    }
    ASSERT_EQ(cache.kept().blocks, model.empty.size()) << i;
  }
}

TEST(BlockCache, WhatTheTruthSaysIsGone) {
  BlockCache cache;
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(cache.begin(false));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(cache.left(), 0u);
  EXPECT_EQ(cache.kept().blocks, 2u);
  EXPECT_TRUE(cache.forget(cache.kept(), 1));
  EXPECT_EQ(cache.kept().blocks, 1u);
  const BlockCache::Kept seen = cache.kept();
  EXPECT_TRUE(cache.begin(false));
  cache.end(true);
  EXPECT_FALSE(cache.forget(seen, 1)) << "the runtime may have made the block anew";
  EXPECT_EQ(cache.kept().blocks, 1u);
  EXPECT_TRUE(cache.forget(cache.kept(), 9)) << "no more than there are";
  EXPECT_FALSE(cache.begin(false));
}

TEST(BlockCache, WhatIsUnderWayMayBeInUse) {
  BlockCache cache;
  for (int i = 0; i < 3; ++i) cache.begin(false);
  // The runtime may have made a block for this one too, and keeps two empty ones therefore.
  cache.begin(false);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(cache.left(), 0u);
  EXPECT_EQ(cache.left(), 1u);
  cache.end(false);
  EXPECT_EQ(cache.kept().blocks, 2u);
}

}  // namespace
}  // namespace fracgpu
