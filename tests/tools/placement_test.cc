// Placement against an oracle that tries everything, and what waiting must guarantee.
#include "tools/claims/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

namespace fracgpu::tools {
namespace {

constexpr uint32_t kGpus = 6;  // few enough to try all subsets
constexpr uint32_t kWhole = claim_table_layout::kEighths;

using Random = std::mt19937;

uint32_t number(Random& random, uint32_t low, uint32_t high) {
  return std::uniform_int_distribution<uint32_t>(low, high)(random);
}

Shares random_free(Random& random) {
  Shares free{};
  for (uint32_t gpu = 0; gpu < kGpus; ++gpu) {
    free[gpu] = static_cast<uint8_t>(number(random, 0, kWhole));
  }
  return free;
}

PlacementRequest random_wish(Random& random) {
  PlacementRequest request;
  switch (number(random, 0, 2)) {
    case 0:
      request.each = number(random, 1, kWhole);
      request.count = 1;
      request.allowed = number(random, 1, (1u << kGpus) - 1);
      break;
    case 1:
      request.each = kWhole;
      request.count = 1u << number(random, 0, 2);
      do {
        request.allowed = number(random, 1, (1u << kGpus) - 1);
      } while (static_cast<uint32_t>(std::popcount(request.allowed)) < request.count);
      break;
    default:
      for (uint32_t gpu = 0; gpu < kGpus; ++gpu) {
        if (number(random, 0, 1) != 0)
          request.exact[gpu] = static_cast<uint8_t>(number(random, 1, 8));
      }
      request.exact[number(random, 0, kGpus - 1)] = static_cast<uint8_t>(number(random, 1, kWhole));
  }
  return request;
}

// Tries every set of GPUs, and of those that do takes the one that leaves the least free on its
// GPUs. Whether there is one, and how little.
bool try_all(const PlacementRequest& request, const Shares& free, uint32_t& least_left) {
  bool any = false;
  for (uint32_t set = 1; set < 1u << kGpus; ++set) {
    bool fits = true;
    uint32_t left = 0;
    for (uint32_t gpu = 0; gpu < kGpus; ++gpu) {
      const bool in = (set >> gpu & 1) != 0;
      const uint32_t need = request.count != 0 ? (in ? request.each : 0) : request.exact[gpu];
      if (request.count != 0 ? in && (request.allowed >> gpu & 1) == 0
                             : in != (request.exact[gpu] > 0)) {
        fits = false;
      }
      if (need > free[gpu]) fits = false;
      if (in && fits) left += free[gpu] - need;
    }
    if (request.count != 0 && static_cast<uint32_t>(std::popcount(set)) != request.count)
      fits = false;
    if (!fits) continue;
    if (!any || left < least_left) least_left = left;
    any = true;
  }
  return any;
}

TEST(PlacementTest, IsWhatTryingEverythingFinds) {
  Random random(20240611);
  int placed = 0;
  for (int round = 0; round < 50'000; ++round) {
    const Shares free = random_free(random);
    const PlacementRequest request = random_wish(random);
    uint32_t least_left = 0;
    const bool possible = try_all(request, free, least_left);
    const auto eighths = place(request, free);
    ASSERT_EQ(eighths.has_value(), possible) << round;
    if (!possible) continue;
    ++placed;
    uint32_t left = 0, gpus = 0;
    for (uint32_t gpu = 0; gpu < claim_table_layout::kMaxGpus; ++gpu) {
      ASSERT_LE((*eighths)[gpu], free[gpu]) << round;
      if ((*eighths)[gpu] == 0) continue;
      ++gpus;
      left += free[gpu] - (*eighths)[gpu];
      if (request.count != 0) {
        ASSERT_EQ((*eighths)[gpu], request.each) << round;
        ASSERT_NE(request.allowed >> gpu & 1, 0u) << round;
      }
    }
    if (request.count != 0) {
      ASSERT_EQ(gpus, request.count) << round;
    } else {
      ASSERT_EQ(*eighths, request.exact) << round;
    }
    ASSERT_EQ(left, least_left) << "not the fullest GPU, round " << round;
  }
  EXPECT_GT(placed, 5'000);
}

TEST(PlacementTest, ServesNobodyTwiceAndNothingBeyondAWholeGpu) {
  Random random(7);
  for (int round = 0; round < 20'000; ++round) {
    const Shares free = random_free(random);
    std::vector<PlacementRequest> requests;
    for (uint32_t i = number(random, 0, 12); i > 0; --i) requests.push_back(random_wish(random));
    const auto served = serve(requests, {.eighths = free});
    ASSERT_EQ(served.size(), requests.size());
    uint32_t taken[claim_table_layout::kMaxGpus] = {};
    for (const auto& each : served) {
      for (uint32_t gpu = 0; each && gpu < claim_table_layout::kMaxGpus; ++gpu) {
        taken[gpu] += each->eighths[gpu];
        ASSERT_LE(taken[gpu], free[gpu]) << round;
      }
    }
    // The first has a right to whatever is free.
    if (!requests.empty()) {
      ASSERT_EQ(served[0].has_value(), place(requests[0], free).has_value()) << round;
    }
  }
}

// Small launches keep coming, each as soon as there is room for it, and stay for random times. One
// that wants much must be served before all that ran when it came, and those that had been let past
// it, have ended: no later than a bound that depends on how long a launch may stay.
TEST(PlacementTest, SmallOnesNeverStarveABigOne) {
  constexpr int kLongest = 20;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    PlacementRequest big;
    big.each = number(random, 0, 2) == 0 ? number(random, 5, 8) : kWhole;
    big.count = big.each == kWhole ? 1u << number(random, 0, 2) : 1;
    big.allowed = (1u << kGpus) - 1;
    struct Running {
      Shares eighths;
      int until;
    };
    std::vector<Running> running;
    bool big_waits = false, served = false;
    int since = 0;
    for (int now = 0; now < 2'000 && !served; ++now) {
      std::erase_if(running, [now](const Running& each) { return each.until <= now; });
      Shares free{};
      for (uint32_t gpu = 0; gpu < kGpus; ++gpu) free[gpu] = kWhole;
      for (const Running& each : running) {
        for (uint32_t gpu = 0; gpu < kGpus; ++gpu) free[gpu] -= each.eighths[gpu];
      }
      if (now == 100) {
        big_waits = true;
        since = now;
      }
      std::vector<PlacementRequest> requests;
      if (big_waits) requests.push_back(big);
      for (int i = 0; i < 20; ++i) {
        PlacementRequest small;
        small.each = number(random, 1, 4);
        small.count = 1;
        small.allowed = (1u << kGpus) - 1;
        requests.push_back(small);
      }
      const auto placed = serve(requests, {.eighths = free});
      served = big_waits && placed[0].has_value();
      for (size_t i = big_waits ? 1 : 0; i < placed.size(); ++i) {
        if (placed[i]) {
          running.push_back(
              {placed[i]->eighths, now + 1 + static_cast<int>(number(random, 0, kLongest))});
        }
      }
      // Each time what is kept for it moves, it moves to an emptier GPU: at most so many levels.
      ASSERT_LE(now - since, big_waits ? kLongest * 9 : 2'000) << "seed " << seed;
    }
    ASSERT_TRUE(served) << "seed " << seed;
  }
}

TEST(PlacementTest, WhoWaitsKeepsTheEmptiestAndLeavesTheOthers) {
  PlacementRequest whole, half;
  whole.allowed = half.allowed = 0b111;
  whole.count = half.count = 1;
  whole.each = kWhole;
  half.each = 4;
  Shares free{};
  free[0] = 4;
  free[1] = 6;
  free[2] = 4;
  const auto served = serve({whole, half, half, half}, {.eighths = free});
  EXPECT_FALSE(served[0]);
  ASSERT_TRUE(served[1] && served[2]);
  EXPECT_EQ(served[1]->eighths[0], 4);
  EXPECT_EQ(served[2]->eighths[2], 4);
  EXPECT_FALSE(served[3]) << "GPU 1 is kept for the first";
}

DividedGpu divided(uint32_t row) {
  return {.row = row,
          .gpu = {.key = "GPU",
                  .slices = 8,
                  .profiles = {{"1g", 19, 1, 1, 1, {0, 1, 2, 3, 4, 5, 6}},
                               {"3g", 9, 3, 4, 1, {0, 4}},
                               {"7g", 0, 7, 8, 1, {0}}}}};
}

PlacementRequest instance(const char* profile, uint64_t allowed) {
  PlacementRequest request;
  request.mig = {.kind = MigWish::Kind::profile, .profile = profile};
  request.mig_allowed = allowed;
  return request;
}

TEST(PlacementTest, SharesBeforeInstancesAndOnlyWhereAllowed) {
  PlacementRequest half = instance("3g", 0b10);
  half.allowed = 0b1;
  half.each = 4;
  half.count = 1;
  Free free{.divided = {divided(1), divided(2)}};
  free.eighths[0] = kWhole;
  const auto served = serve({half, half, half, half, half}, free);
  EXPECT_EQ(served[0]->eighths[0], 4);
  EXPECT_EQ(served[1]->eighths[0], 4);
  for (const size_t i : {2, 3}) {
    ASSERT_TRUE(served[i] && served[i]->instance) << i;
    EXPECT_EQ(served[i]->instance->row, 1U) << i;
  }
  EXPECT_NE(served[2]->instance->start, served[3]->instance->start);
  EXPECT_FALSE(served[4]) << "GPU 2 is none that it may have";
}

TEST(PlacementTest, SmallInstancesNeverStarveABigOne) {
  Free free{.divided = {divided(1)}};
  free.divided[0].gpu.occupied = 0b1;
  const auto all = serve({instance("7g", 0b10), instance("1g", 0b10)}, free);
  EXPECT_FALSE(all[0] || all[1]) << "all of it is kept for the first";
  const auto half = serve({instance("3g", 0b10), instance("3g", 0b10), instance("1g", 0b10)}, free);
  ASSERT_TRUE(half[0]);
  EXPECT_EQ(half[0]->instance->start, 4);
  EXPECT_FALSE(half[1] || half[2]) << "the rest is kept for the second, where it drains";
  // What never drains is kept from nobody.
  free.divided[0].fixed = 0b1;
  EXPECT_TRUE(serve({instance("7g", 0b10), instance("1g", 0b10)}, free)[1]);
}

}  // namespace
}  // namespace fracgpu::tools
