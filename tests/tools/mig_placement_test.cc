// Where MIG instances go, judged by first fit and by a planner that knows what will come and tries
// everything. The tables are those of NVIDIA's MIG user guide ("Supported MIG Profiles").
#include "tools/claims/mig_placement.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <map>
#include <random>

namespace fracgpu::tools {
namespace {

using Random = std::mt19937;
using Kind = MigWish::Kind;
constexpr uint64_t kMib = 1 << 20;

uint32_t number(Random& random, uint32_t low, uint32_t high) {
  return std::uniform_int_distribution<uint32_t>(low, high)(random);
}

MigGpu h100() {
  return {.key = "GPU-h100",
          .slices = 8,
          .profiles = {{"1g.10gb", 19, 1, 1, 9984 * kMib, {0, 1, 2, 3, 4, 5, 6}},
                       {"1g.10gb+me", 20, 1, 1, 9984 * kMib, {0, 1, 2, 3, 4, 5, 6}},
                       {"1g.20gb", 15, 1, 2, 20096 * kMib, {0, 2, 4, 6}},
                       {"2g.20gb", 14, 2, 2, 20096 * kMib, {0, 2, 4}},
                       {"3g.40gb", 9, 3, 4, 40448 * kMib, {0, 4}},
                       {"4g.40gb", 5, 4, 4, 40448 * kMib, {0}},
                       {"7g.80gb", 0, 7, 8, 81152 * kMib, {0}}}};
}

MigGpu a30() {
  return {.key = "GPU-a30",
          .slices = 4,
          .profiles = {{"1g.6gb", 14, 1, 1, 5952 * kMib, {0, 1, 2, 3}},
                       {"2g.12gb", 5, 2, 2, 12032 * kMib, {0, 2}},
                       {"4g.24gb", 0, 4, 4, 24125 * kMib, {0}}}};
}

MigWish memory(uint64_t mib) {
  return {.kind = Kind::memory, .amount = mib * kMib};
}
MigWish share(uint64_t eighths) {
  return {.kind = Kind::share, .amount = eighths};
}
MigWish profile(const char* name) {
  return {.kind = Kind::profile, .profile = name};
}

std::string chosen(const MigGpu& gpu, const MigWish& wish) {
  const auto found = profile_for(gpu, wish);
  return found ? gpu.profiles[*found].name : "none";
}

TEST(MigPlacementTest, TheSmallestProfileThatIsEnough) {
  EXPECT_EQ(chosen(h100(), memory(1)), "1g.10gb");
  EXPECT_EQ(chosen(h100(), memory(9984)), "1g.10gb");
  EXPECT_EQ(chosen(h100(), memory(9985)), "1g.20gb");
  EXPECT_EQ(chosen(h100(), memory(40448)), "3g.40gb");
  EXPECT_EQ(chosen(h100(), memory(40449)), "7g.80gb");
  EXPECT_EQ(chosen(h100(), memory(81153)), "none");
  EXPECT_EQ(chosen(h100(), profile("1g.10gb+me")), "1g.10gb+me");
  EXPECT_EQ(chosen(h100(), profile("5g.50gb")), "none");
  EXPECT_EQ(chosen(h100(), MigWish{}), "none");
}

TEST(MigPlacementTest, AShareIsOneOfMemoryAndOfCompute) {
  const char* const of_h100[] = {"1g.10gb", "2g.20gb", "3g.40gb", "3g.40gb",
                                 "7g.80gb", "7g.80gb", "7g.80gb", "7g.80gb"};
  const char* const of_a30[] = {"1g.6gb",  "1g.6gb",  "2g.12gb", "2g.12gb",
                                "4g.24gb", "4g.24gb", "4g.24gb", "4g.24gb"};
  for (uint64_t eighths = 1; eighths <= 8; ++eighths) {
    EXPECT_EQ(chosen(h100(), share(eighths)), of_h100[eighths - 1]) << eighths;
    EXPECT_EQ(chosen(a30(), share(eighths)), of_a30[eighths - 1]) << eighths;
  }
}

// One GPU is enough for two halves, for four quarters less a slice of compute, for seven eighths.
TEST(MigPlacementTest, SharesFitBesideEachOther) {
  const auto fitting = [](uint64_t eighths) {
    std::vector<MigGpu> gpus = {h100()};
    int count = 0;
    while (const auto at = place_instance(gpus, share(eighths))) {
      gpus[0].occupied |= gpus[0].profiles[at->profile].mask(at->start);
      ++count;
    }
    return count;
  };
  EXPECT_EQ(fitting(1), 7);
  EXPECT_EQ(fitting(2), 3);
  EXPECT_EQ(fitting(4), 2);
  EXPECT_EQ(fitting(8), 1);
}

TEST(MigPlacementTest, SmallOnesGoWhereNothingLargerFits) {
  // At slice 6 a small one costs others least: with one at 0, no 4g could be made any more.
  std::vector<MigGpu> gpus = {h100()};
  const auto first = place_instance(gpus, profile("1g.10gb"));
  ASSERT_TRUE(first);
  gpus[0].occupied |= gpus[0].profiles[first->profile].mask(first->start);
  EXPECT_TRUE(place_instance(gpus, profile("4g.40gb")));
  // A GPU that has something is taken before one that has nothing.
  gpus.push_back(h100());
  EXPECT_EQ(place_instance(gpus, profile("3g.40gb"))->gpu, 0U);
  EXPECT_EQ(place_instance(gpus, profile("7g.80gb"))->gpu, 1U);
}

TEST(MigPlacementTest, WhoWaitsIsKeptThePlaceThatDrainsFirst) {
  std::vector<MigGpu> gpus = {h100(), h100()};
  gpus[0].occupied = 0b11111111;
  gpus[1].occupied = 0b00110011;
  // Of the second GPU somebody else's instance never goes.
  const auto at = earmark_instance(gpus, {0, 0b00000001}, profile("3g.40gb"));
  ASSERT_TRUE(at);
  EXPECT_EQ(at->gpu, 1U);
  EXPECT_EQ(at->start, 4);
  EXPECT_FALSE(earmark_instance(gpus, {0xff, 0b00000001}, profile("7g.80gb")));
}

// Sequences of launches that come and, of some, go again.
struct Event {
  bool comes = true;
  size_t profile = 0;  // that comes
  size_t of = 0;       // the event of the one that goes
};

std::vector<Event> random_events(Random& random, const MigGpu& gpu, size_t count, bool some_go) {
  std::vector<double> weights;
  for (const MigProfile& each : gpu.profiles) {
    weights.push_back(each.is_plain() ? number(random, 0, 1000) : 0);
  }
  std::discrete_distribution<size_t> profiles(weights.begin(), weights.end());
  std::vector<Event> events;
  std::vector<size_t> alive;
  while (events.size() < count) {
    if (some_go && !alive.empty() && number(random, 0, 99) < 40) {
      const size_t which = number(random, 0, static_cast<uint32_t>(alive.size() - 1));
      events.push_back({.comes = false, .of = alive[which]});
      alive.erase(alive.begin() + static_cast<long>(which));
    } else {
      alive.push_back(events.size());
      events.push_back({.profile = profiles(random)});
    }
  }
  return events;
}

using Chooser = std::optional<MigPlace> (*)(const std::vector<MigGpu>&, const MigWish&);

std::optional<MigPlace> first_fit(const std::vector<MigGpu>& gpus, const MigWish& wish) {
  for (size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    for (size_t i = 0; i < gpus[gpu].profiles.size(); ++i) {
      const MigProfile& each = gpus[gpu].profiles[i];
      if (each.name != wish.profile) continue;
      for (const uint8_t start : each.starts) {
        if ((gpus[gpu].occupied & each.mask(start)) == 0) return MigPlace{gpu, i, start};
      }
    }
  }
  return std::nullopt;
}

// How many are served until one is refused.
uint64_t served_until_refused(Chooser choose, std::vector<MigGpu> gpus,
                              const std::vector<Event>& events) {
  std::map<size_t, MigPlace> alive;
  uint64_t served = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    const auto mask = [&](const MigPlace& at) {
      return gpus[at.gpu].profiles[at.profile].mask(at.start);
    };
    if (!events[i].comes) {
      const MigPlace at = alive.at(events[i].of);
      gpus[at.gpu].occupied &= ~mask(at);
      continue;
    }
    const auto at = choose(gpus, profile(gpus[0].profiles[events[i].profile].name.c_str()));
    if (!at) break;
    EXPECT_EQ(gpus[at->gpu].occupied & mask(*at), 0U) << "given twice";
    gpus[at->gpu].occupied |= mask(*at);
    alive[i] = *at;
    ++served;
  }
  return served;
}

// The most that could be, by trying every place of each and knowing what comes.
uint64_t most_served(std::vector<MigGpu>& gpus, const std::vector<Event>& events, size_t next) {
  if (next == events.size()) return 0;
  uint64_t most = 0;
  for (MigGpu& gpu : gpus) {
    const MigProfile& each = gpu.profiles[events[next].profile];
    for (const uint8_t start : each.starts) {
      const SliceMask mask = each.mask(start);
      if ((gpu.occupied & mask) != 0) continue;
      gpu.occupied |= mask;
      most = std::max(most, 1 + most_served(gpus, events, next + 1));
      gpu.occupied &= ~mask;
    }
  }
  return most;
}

// No planner that does not know what comes can be better in every single sequence; in their sum
// this one must be.
TEST(MigPlacementTest, BetterThanFirstFit) {
  const bool campaign = getenv("FRACGPU_CAMPAIGN") != nullptr;
  const int sequences = campaign ? 1'000'000 : 20'000;
  Random random(20261123);
  for (const MigGpu& card : {h100(), a30()}) {
    uint64_t ours = 0, theirs = 0, worse = 0;
    for (int i = 0; i < sequences / 2; ++i) {
      const std::vector<MigGpu> gpus(number(random, 1, 4), card);
      const auto events = random_events(random, card, 12 * gpus.size(), i % 2 == 0);
      const uint64_t mine = served_until_refused(place_instance, gpus, events);
      const uint64_t first = served_until_refused(first_fit, gpus, events);
      ours += mine;
      theirs += first;
      worse += mine < first ? 1 : 0;
    }
    printf("%s: %llu served before the first refusal, first fit %llu; fewer in %.1f %% of %d\n",
           card.key.c_str(), static_cast<unsigned long long>(ours),
           static_cast<unsigned long long>(theirs),
           100.0 * static_cast<double>(worse) / (sequences / 2.0), sequences / 2);
    EXPECT_GE(ours, theirs) << card.key;
    EXPECT_LT(worse, static_cast<uint64_t>(sequences) / 2 / 20) << card.key;
  }
}

TEST(MigPlacementTest, WithinATwentiethOfWhoKnowsWhatComes) {
  Random random(7);
  for (const MigGpu& card : {h100(), a30()}) {
    for (const size_t count : {1, 2}) {
      uint64_t ours = 0, most = 0;
      for (int i = 0; i < 300; ++i) {
        std::vector<MigGpu> gpus(count, card);
        const auto events = random_events(random, card, 7 * count, false);
        ours += served_until_refused(place_instance, gpus, events);
        most += most_served(gpus, events, 0);
      }
      printf("%s x %zu: %llu of %llu\n", card.key.c_str(), count,
             static_cast<unsigned long long>(ours), static_cast<unsigned long long>(most));
      EXPECT_GE(static_cast<double>(ours), 0.95 * static_cast<double>(most)) << card.key;
    }
  }
}

}  // namespace
}  // namespace fracgpu::tools
