// Placement against an oracle that tries everything, and what waiting must guarantee.
#include "tools/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

namespace fracgpu::tools {
namespace {

constexpr uint32_t kGpus = 6;  // few enough to try all subsets
constexpr uint32_t kWhole = book_layout::kParts;

using Random = std::mt19937;

uint32_t number(Random& random, uint32_t low, uint32_t high) {
  return std::uniform_int_distribution<uint32_t>(low, high)(random);
}

Parts random_free(Random& random) {
  Parts free{};
  for (uint32_t gpu = 0; gpu < kGpus; ++gpu) {
    free[gpu] = static_cast<uint8_t>(number(random, 0, kWhole));
  }
  return free;
}

Wish random_wish(Random& random) {
  Wish wish;
  switch (number(random, 0, 2)) {
    case 0:
      wish.each = number(random, 1, kWhole);
      wish.count = 1;
      wish.allowed = number(random, 1, (1u << kGpus) - 1);
      break;
    case 1:
      wish.each = kWhole;
      wish.count = 1u << number(random, 0, 2);
      do {
        wish.allowed = number(random, 1, (1u << kGpus) - 1);
      } while (static_cast<uint32_t>(std::popcount(wish.allowed)) < wish.count);
      break;
    default:
      for (uint32_t gpu = 0; gpu < kGpus; ++gpu) {
        if (number(random, 0, 1) != 0) wish.exact[gpu] = static_cast<uint8_t>(number(random, 1, 8));
      }
      wish.exact[number(random, 0, kGpus - 1)] = static_cast<uint8_t>(number(random, 1, kWhole));
  }
  return wish;
}

// Tries every set of GPUs, and of those that do takes the one that leaves the least free on its
// GPUs. Whether there is one, and how little.
bool try_all(const Wish& wish, const Parts& free, uint32_t& least_left) {
  bool any = false;
  for (uint32_t set = 1; set < 1u << kGpus; ++set) {
    bool fits = true;
    uint32_t left = 0;
    for (uint32_t gpu = 0; gpu < kGpus; ++gpu) {
      const bool in = (set >> gpu & 1) != 0;
      const uint32_t need = wish.count != 0 ? (in ? wish.each : 0) : wish.exact[gpu];
      if (wish.count != 0 ? in && (wish.allowed >> gpu & 1) == 0 : in != (wish.exact[gpu] > 0)) {
        fits = false;
      }
      if (need > free[gpu]) fits = false;
      if (in && fits) left += free[gpu] - need;
    }
    if (wish.count != 0 && static_cast<uint32_t>(std::popcount(set)) != wish.count) fits = false;
    if (!fits) continue;
    if (!any || left < least_left) least_left = left;
    any = true;
  }
  return any;
}

TEST(Placement, IsWhatTryingEverythingFinds) {
  Random random(20240611);
  int placed = 0;
  for (int round = 0; round < 50'000; ++round) {
    const Parts free = random_free(random);
    const Wish wish = random_wish(random);
    uint32_t least_left = 0;
    const bool possible = try_all(wish, free, least_left);
    const auto parts = place(wish, free);
    ASSERT_EQ(parts.has_value(), possible) << round;
    if (!possible) continue;
    ++placed;
    uint32_t left = 0, gpus = 0;
    for (uint32_t gpu = 0; gpu < book_layout::kMaxGpus; ++gpu) {
      ASSERT_LE((*parts)[gpu], free[gpu]) << round;
      if ((*parts)[gpu] == 0) continue;
      ++gpus;
      left += free[gpu] - (*parts)[gpu];
      if (wish.count != 0) {
        ASSERT_EQ((*parts)[gpu], wish.each) << round;
        ASSERT_NE(wish.allowed >> gpu & 1, 0u) << round;
      }
    }
    if (wish.count != 0) {
      ASSERT_EQ(gpus, wish.count) << round;
    } else {
      ASSERT_EQ(*parts, wish.exact) << round;
    }
    ASSERT_EQ(left, least_left) << "not the fullest GPU, round " << round;
  }
  EXPECT_GT(placed, 5'000);
}

TEST(Placement, ServesNobodyTwiceAndNothingBeyondAWholeGpu) {
  Random random(7);
  for (int round = 0; round < 20'000; ++round) {
    const Parts free = random_free(random);
    std::vector<Wish> wishes;
    for (uint32_t i = number(random, 0, 12); i > 0; --i) wishes.push_back(random_wish(random));
    const auto served = serve(wishes, free);
    ASSERT_EQ(served.size(), wishes.size());
    uint32_t taken[book_layout::kMaxGpus] = {};
    for (const auto& parts : served) {
      for (uint32_t gpu = 0; parts && gpu < book_layout::kMaxGpus; ++gpu) {
        taken[gpu] += (*parts)[gpu];
        ASSERT_LE(taken[gpu], free[gpu]) << round;
      }
    }
    // The first has a right to whatever is free.
    if (!wishes.empty()) {
      ASSERT_EQ(served[0].has_value(), place(wishes[0], free).has_value()) << round;
    }
  }
}

// Small launches keep coming, each as soon as there is room for it, and stay for random times. One
// that wants much must be served before all that ran when it came, and those that had been let past
// it, have ended: no later than a bound that depends on how long a launch may stay.
TEST(Placement, SmallOnesNeverStarveABigOne) {
  constexpr int kLongest = 20;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    Wish big;
    big.each = number(random, 0, 2) == 0 ? number(random, 5, 8) : kWhole;
    big.count = big.each == kWhole ? 1u << number(random, 0, 2) : 1;
    big.allowed = (1u << kGpus) - 1;
    struct Running {
      Parts parts;
      int until;
    };
    std::vector<Running> running;
    bool big_waits = false, served = false;
    int since = 0;
    for (int now = 0; now < 2'000 && !served; ++now) {
      std::erase_if(running, [now](const Running& each) { return each.until <= now; });
      Parts free{};
      for (uint32_t gpu = 0; gpu < kGpus; ++gpu) free[gpu] = kWhole;
      for (const Running& each : running) {
        for (uint32_t gpu = 0; gpu < kGpus; ++gpu) free[gpu] -= each.parts[gpu];
      }
      if (now == 100) {
        big_waits = true;
        since = now;
      }
      std::vector<Wish> wishes;
      if (big_waits) wishes.push_back(big);
      for (int i = 0; i < 20; ++i) {
        Wish small;
        small.each = number(random, 1, 4);
        small.count = 1;
        small.allowed = (1u << kGpus) - 1;
        wishes.push_back(small);
      }
      const auto placed = serve(wishes, free);
      served = big_waits && placed[0].has_value();
      for (size_t i = big_waits ? 1 : 0; i < placed.size(); ++i) {
        if (placed[i]) {
          running.push_back({*placed[i], now + 1 + static_cast<int>(number(random, 0, kLongest))});
        }
      }
      // Each time what is kept for it moves, it moves to an emptier GPU: at most so many levels.
      ASSERT_LE(now - since, big_waits ? kLongest * 9 : 2'000) << "seed " << seed;
    }
    ASSERT_TRUE(served) << "seed " << seed;
  }
}

TEST(Placement, WhoWaitsKeepsTheEmptiestAndLeavesTheOthers) {
  Wish whole, half;
  whole.allowed = half.allowed = 0b111;
  whole.count = half.count = 1;
  whole.each = kWhole;
  half.each = 4;
  Parts free{};
  free[0] = 4;
  free[1] = 6;
  free[2] = 4;
  const auto served = serve({whole, half, half, half}, free);
  EXPECT_FALSE(served[0]);
  ASSERT_TRUE(served[1] && served[2]);
  EXPECT_EQ((*served[1])[0], 4);
  EXPECT_EQ((*served[2])[2], 4);
  EXPECT_FALSE(served[3]) << "GPU 1 is kept for the first";
}

}  // namespace
}  // namespace fracgpu::tools
