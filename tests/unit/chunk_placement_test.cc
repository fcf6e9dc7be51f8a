// Where small allocations are thought to be placed, beside a list of holes that is kept in the
// plainest way.
#include "shim/tracking/chunk_placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace fracgpu {
namespace {

constexpr uint32_t kChunk = 4096;  // units of 512 bytes

// Allocations of one chunk: where each begins, and how long it is.
using PlainChunk = std::map<uint32_t, uint32_t>;

// The smallest hole that fits, and where it begins.
std::pair<uint32_t, uint32_t> smallest_hole(const PlainChunk& chunk, uint32_t units) {
  std::pair<uint32_t, uint32_t> best{UINT32_MAX, 0};
  uint32_t at = 0;
  const auto look = [&](uint32_t end) {
    if (end - at >= units && end - at < best.first) best = {end - at, at};
  };
  for (const auto& [first, length] : chunk) {
    look(first);
    at = first + length;
  }
  look(kChunk);
  return best;
}

struct Placed {
  ChunkPlacement::Place place;
  uint32_t units;
};

class Placement : public testing::Test {
 protected:
  ~Placement() override { placement.clear(); }

  // Whether a new chunk was needed.
  bool add(uint32_t units) {
    ChunkPlacement::Place place;
    const bool is_new = !placement.take_hole(occupancies, units, place);
    if (is_new) {
      EXPECT_TRUE(placement.add_chunk(occupancies, units, place));
    }
    placed.push_back({place, units});
    return is_new;
  }
  // Whether its chunk went with it.
  bool remove(size_t i) {
    const Placed gone = placed[i];
    placed.erase(placed.begin() + static_cast<ptrdiff_t>(i));
    return placement.give_back(occupancies, gone.place);
  }

  ChunkOccupancies occupancies;
  ChunkPlacement placement;
  std::vector<Placed> placed;
};

TEST_F(Placement, FillsChunksToTheEnd) {
  for (int i = 0; i < 20; ++i) EXPECT_EQ(add(200), i == 0);
  EXPECT_TRUE(add(200));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(remove(0), i == 19);
  EXPECT_TRUE(remove(0));
}

TEST_F(Placement, TakesTheSmallestHoleThatFits) {
  add(2048);
  add(1024);  // leaves 1024
  add(2048);
  add(1984);  // leaves 64
  EXPECT_FALSE(add(64));
  EXPECT_FALSE(add(1024));  // would not fit if the last one had taken the first chunk
}

// Nothing overlaps, a hole is used where there is one, and a chunk goes with its last user.
TEST_F(Placement, DoesAsAPlainListDoes) {
  std::mt19937 chance(7);
  std::map<uint32_t, PlainChunk> chunks;
  for (int step = 0; step < 20000; ++step) {
    if (placed.empty() || chance() % 100 < 52) {
      const uint32_t units = 1 + chance() % 2048;
      const bool fits = std::any_of(chunks.begin(), chunks.end(), [&](const auto& chunk) {
        return smallest_hole(chunk.second, units).first != UINT32_MAX;
      });
      ASSERT_EQ(add(units), !fits);
      const ChunkPlacement::Place place = placed.back().place;
      PlainChunk& chunk = chunks[place.chunk];
      ASSERT_EQ(place.first, smallest_hole(chunk, units).second) << "not the smallest of its chunk";
      chunk[place.first] = units;
    } else {
      const size_t i = chance() % placed.size();
      const ChunkPlacement::Place place = placed[i].place;
      PlainChunk& chunk = chunks[place.chunk];
      chunk.erase(place.first);
      ASSERT_EQ(remove(i), chunk.empty());
      if (chunk.empty()) chunks.erase(place.chunk);
    }
  }
  while (!placed.empty()) remove(0);
}

}  // namespace
}  // namespace fracgpu
