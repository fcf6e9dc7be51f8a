// What a report finds out, against a witness that keeps all events and adds everything up anew
// after each of them.
#include "tools/report/analysis.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>

#include "tools/recording/writer.h"

namespace fracgpu::tools::report {
namespace {

using recording::Event;
using recording::EventType;
using recording::kNone;
using recording::MemoryKind;

constexpr uint64_t kMs = 1'000'000;
constexpr uint32_t kDevices = 2, kProcesses = 3, kStacks = 5;

using PartKey = std::tuple<uint32_t, MemoryKind, uint32_t>;  // process, kind, stack
struct Amounts {
  uint64_t taken = 0, live = 0, count = 0;
  bool operator==(const Amounts&) const = default;
};
using Parts = std::map<PartKey, Amounts>;

// All that lives after some event, added up.
struct State {
  uint64_t time_ns = 0;
  std::map<uint32_t, Sums> devices{};
  std::map<std::pair<uint32_t, uint32_t>, Sums> uses{};  // process, device
  std::map<uint32_t, Parts> parts{};                     // by device
};

class Witness {
 public:
  void see(Event event) {
    now_ = std::max(now_, event.time_ns);
    event.time_ns = now_;
    if (event.type == EventType::allocated) {
      living.push_back(event);
      if (event.kind == MemoryKind::pool) place_in_chunk(event);
    } else if (event.type == EventType::released) {
      const auto same = std::find_if(living.begin(), living.end(), [&](const Event& each) {
        return each.process == event.process && each.address == event.address;
      });
      if (same != living.end()) end(same);
    } else if (event.type == EventType::level) {
      uint64_t& level = levels[{event.process, event.device, event.kind, event.owner}];
      if (event.kind == MemoryKind::reserved && event.taken > level)
        grow_pool(event, event.taken - level);
      level = event.taken;
    } else if (event.type == EventType::ended) {
      for (auto each = living.begin(); each != living.end();) {
        each = each->process == event.process ? end_left(each) : each + 1;
      }
      std::erase_if(levels,
                    [&](const auto& each) { return std::get<0>(each.first) == event.process; });
      std::erase_if(pools,
                    [&](const auto& each) { return std::get<0>(each.first) == event.process; });
    }
    add_up();
  }

  void finish() {
    while (!living.empty()) end_left(living.begin());
  }

  std::vector<Event> living{};
  std::map<std::tuple<uint32_t, uint32_t, MemoryKind, uint64_t>, uint64_t> levels{};
  std::vector<State> states{State{}};
  struct Life {
    Event event;
    uint64_t lived_ns;
    bool left;
  };
  std::vector<Life> lives{};

 private:
  // By the rule: a pool grows for an allocation that lies in none of its chunks, by one with that
  // at its start; the growth is told next. What overlaps a new chunk is gone.
  struct Chunks {
    std::vector<std::pair<uint64_t, uint64_t>> spans{};  // begin, end
    bool last_is_new = false;
  };
  using PoolKey = std::tuple<uint32_t, uint32_t, uint64_t>;
  std::map<PoolKey, Chunks> pools{};
  static constexpr uint64_t kMiB = 1024 * 1024;

  void place_in_chunk(const Event& event) {
    Chunks& chunks = pools[{event.process, event.device, event.owner}];
    chunks.last_is_new = false;
    for (const auto& [begin, end] : chunks.spans) {
      if (begin <= event.address && event.address < end) return;
    }
    const uint64_t begin = event.address - event.address % (2 * kMiB);
    uint64_t end = begin + 2 * kMiB;
    while (end < event.address + event.bytes) end += 2 * kMiB;
    std::erase_if(chunks.spans,
                  [&](const auto& each) { return each.first < end && begin < each.second; });
    chunks.spans.emplace_back(begin, end);
    chunks.last_is_new = true;
  }

  void grow_pool(const Event& event, uint64_t by) {
    Chunks& chunks = pools[{event.process, event.device, event.owner}];
    if (!std::exchange(chunks.last_is_new, false)) return;
    auto& [begin, end] = chunks.spans.back();
    uint64_t wanted = begin + by;
    for (const auto& each : chunks.spans) {
      if (each.first > begin) wanted = std::min(wanted, each.first);
    }
    end = std::max(end, wanted);
  }

  // Of chunks in which something lives.
  uint64_t chunks_in_use(const PoolKey& key) {
    uint64_t sum = 0;
    for (const auto& [begin, end] : pools[key].spans) {
      const bool used = std::any_of(living.begin(), living.end(), [&](const Event& each) {
        return each.kind == MemoryKind::pool &&
               PoolKey{each.process, each.device, each.owner} == key && begin <= each.address &&
               each.address < end;
      });
      if (used) sum += end - begin;
    }
    return sum;
  }

  std::vector<Event>::iterator end(std::vector<Event>::iterator which, bool left = false) {
    lives.push_back({*which, now_ - which->time_ns, left});
    return living.erase(which);
  }
  std::vector<Event>::iterator end_left(std::vector<Event>::iterator which) {
    return end(which, true);
  }

  void add_up() {
    State state;
    state.time_ns = now_;
    std::map<std::tuple<uint32_t, uint32_t, uint64_t>, uint64_t> live_in_pools;
    const auto add = [&](uint32_t process, uint32_t device, MemoryKind kind, uint32_t stack,
                         uint64_t sum, const Amounts& part) {
      for (Sums* sums : {&state.devices[device], &state.uses[{process, device}]}) {
        sums->taken += sum;
        sums->needed += sum;
        sums->live += part.live;
      }
      Amounts& amounts = state.parts[device][{process, kind, stack}];
      amounts.taken += part.taken;
      amounts.live += part.live;
      amounts.count += part.count;
    };
    for (const Event& each : living) {
      const bool pooled = each.kind == MemoryKind::pool;
      add(each.process, each.device, each.kind, each.stack, each.taken,
          {pooled ? each.bytes : each.taken, each.bytes, 1});
      if (pooled) live_in_pools[{each.process, each.device, each.owner}] += each.bytes;
    }
    for (const auto& [key, level] : levels) {
      const auto& [process, device, kind, owner] = key;
      uint64_t part = level;
      if (kind == MemoryKind::reserved) {
        const uint64_t live = live_in_pools[{process, device, owner}];
        part = level > live ? level - live : 0;
        const uint64_t kept = std::max(live, chunks_in_use({process, device, owner}));
        const uint64_t back = level - std::min(level, kept);
        state.devices[device].needed -= back;
        state.uses[{process, device}].needed -= back;
      }
      add(process, device, kind, 0, level, {part, 0, 0});
    }
    for (auto& [device, parts] : state.parts) {
      std::erase_if(parts, [](const auto& each) { return each.second == Amounts{}; });
    }
    states.push_back(state);
  }

  uint64_t now_ = 0;
};

Parts as_map(const std::vector<Part>& parts) {
  Parts map;
  for (const Part& each : parts) {
    EXPECT_TRUE(map.try_emplace({each.process, each.kind, each.stack},
                                Amounts{each.taken, each.live, each.count})
                    .second)
        << "a part is there twice";
  }
  return map;
}

// The first state at which the most was taken, and of those the most live.
template <typename SumsOf>
const State& greatest(const std::vector<State>& states, SumsOf sums_of) {
  const State* found = &states.front();
  for (const State& each : states) {
    const Sums now = sums_of(each), then = sums_of(*found);
    if (std::pair(now.taken, now.live) > std::pair(then.taken, then.live)) found = &each;
  }
  return *found;
}

class AnalysisTest : public testing::Test {
 protected:
  AnalysisTest() : path_(testing::TempDir() + "analysis-" + std::to_string(getpid()) + ".rec") {}
  ~AnalysisTest() override { unlink(path_.c_str()); }

  // Of a few processes: what is written, and what the witness makes of it.
  void record(uint32_t seed, int events) {
    std::mt19937 random(seed);
    recording::Writer writer(path_, {}, true);
    for (uint32_t i = 0; i < kProcesses; ++i) writer.add_process({10 + i, 100 + i, "p", 0});
    for (uint32_t i = 0; i < kDevices; ++i) {
      writer.add_device({"GPU-" + std::to_string(i), "", 1ULL << 36, 1ULL << 35});
    }
    const uint32_t module = writer.add_module({"/bin/p", ""});
    for (uint32_t i = 1; i < kStacks; ++i) writer.add_stack({{module, i * 16, 0}});
    uint64_t now = 0, address = 4096;
    for (int i = 0; i < events; ++i) {
      now += random() % 4 == 0 ? 0 : random() % (random() % 8 == 0 ? 100 * kMs : 2 * kMs);
      Event event = next(random, address);
      event.time_ns = now;
      writer.add(event);
      witness_.see(event);
    }
    writer.finish();
    witness_.finish();
    end_ns_ = now;
  }

  Event next(std::mt19937& random, uint64_t& address) {
    Event event;
    event.process = random() % kProcesses;
    event.device = random() % 8 == 0 ? kNone : random() % kDevices;
    const uint32_t what = random() % 100;
    if (what < 45 || witness_.living.empty()) {
      event.type = EventType::allocated;
      event.kind = static_cast<MemoryKind>(random() % 5);
      event.stack = random() % kStacks;
      event.bytes = random() % (8ULL << 20);
      event.taken = event.kind == MemoryKind::pool ? 0 : (event.bytes + 511) / 512 * 512;
      event.owner = event.kind == MemoryKind::pool ? 1 + random() % 2 : 0;
      event.address = address += 8ULL << 20;
    } else if (what < 80) {
      event = witness_.living[random() % witness_.living.size()];
      event.type = EventType::released;
    } else if (what < 97) {
      event.type = EventType::level;
      event.kind = random() % 2 == 0 ? MemoryKind::reserved : MemoryKind::overhead;
      event.owner = event.kind == MemoryKind::reserved ? 1 + random() % 2 : 0;
      event.taken = random() % (64ULL << 20);
    } else {
      event.type = EventType::ended;
      event.device = kNone;
    }
    return event;
  }

  std::string path_;
  Witness witness_;
  uint64_t end_ns_ = 0;
};

class RandomAnalysisTest : public AnalysisTest, public testing::WithParamInterface<uint32_t> {};

TEST_P(RandomAnalysisTest, FindsThePeaksAndWhatTheyWereMadeOf) {
  record(GetParam(), 400);
  recording::Reader reader(path_);
  const Analysis analysis = analyse(reader);
  EXPECT_EQ(analysis.damage, "");
  EXPECT_EQ(analysis.duration_ns, end_ns_);
  EXPECT_EQ(analysis.unmatched, 0U);
  for (const DeviceUse& use : analysis.devices) {
    const auto sums_of = [&](const State& state) {
      const auto found = state.devices.find(use.device);
      return found == state.devices.end() ? Sums{} : found->second;
    };
    const State& peak = greatest(witness_.states, sums_of);
    EXPECT_EQ(use.peak.sums, sums_of(peak)) << "device " << use.device;
    EXPECT_EQ(use.taken.time_ns, peak.time_ns);
    EXPECT_EQ(as_map(use.peak.parts), peak.parts.at(use.device));
    uint64_t live = 0, needed = 0;
    for (const State& each : witness_.states) {
      live = std::max(live, sums_of(each).live);
      needed = std::max(needed, sums_of(each).needed);
    }
    EXPECT_EQ(use.live.bytes, live);
    EXPECT_EQ(use.needed.bytes, needed);
    EXPECT_EQ(use.at_end, sums_of(witness_.states.back()));
  }
  for (const ProcessUse& use : analysis.uses) {
    const auto sums_of = [&](const State& state) {
      const auto found = state.uses.find({use.process, use.device});
      return found == state.uses.end() ? Sums{} : found->second;
    };
    const State& peak = greatest(witness_.states, sums_of);
    EXPECT_EQ(use.peak.sums, sums_of(peak));
    EXPECT_EQ(use.peak.time_ns, peak.time_ns);
    Parts own;
    for (const auto& [key, amounts] : peak.parts.at(use.device)) {
      if (std::get<0>(key) == use.process) own[key] = amounts;
    }
    EXPECT_EQ(as_map(use.peak.parts), own);
  }
}

// Of a span, what there is at its beginning is a moment of it as any other.
TEST_P(RandomAnalysisTest, TellsOfASpanWhatHappenedInIt) {
  record(GetParam(), 400);
  const uint64_t from = end_ns_ / 3, to = end_ns_ / 3 * 2;
  recording::Reader reader(path_);
  Choice choice;
  choice.from_ns = from;
  choice.to_ns = to;
  const Analysis analysis = analyse(reader, choice);
  EXPECT_EQ(analysis.from_ns, from);
  EXPECT_EQ(analysis.duration_ns, to);
  std::vector<State> span(1);
  for (const State& each : witness_.states) {
    if (each.time_ns < from) {
      span[0] = each;
    } else if (each.time_ns <= to) {
      span.push_back(each);
    }
  }
  span[0].time_ns = from;
  for (const DeviceUse& use : analysis.devices) {
    const auto sums_of = [&](const State& state) {
      const auto found = state.devices.find(use.device);
      return found == state.devices.end() ? Sums{} : found->second;
    };
    const State& peak = greatest(span, sums_of);
    EXPECT_EQ(use.peak.sums, sums_of(peak)) << "device " << use.device;
    EXPECT_EQ(use.taken.time_ns, peak.time_ns);
    const auto parts = peak.parts.find(use.device);
    EXPECT_EQ(as_map(use.peak.parts), parts == peak.parts.end() ? Parts{} : parts->second);
    uint64_t live = 0, needed = 0;
    for (const State& each : span) {
      live = std::max(live, sums_of(each).live);
      needed = std::max(needed, sums_of(each).needed);
    }
    EXPECT_EQ(use.live.bytes, live);
    EXPECT_EQ(use.needed.bytes, needed);
    EXPECT_EQ(use.at_end, sums_of(span.back()));
  }
  uint64_t allocated = 0, told = 0;
  for (const Witness::Life& each : witness_.lives) {
    if (each.event.time_ns >= from && each.event.time_ns <= to) allocated += each.event.bytes;
  }
  for (const Site& each : analysis.sites) told += each.allocated_bytes;
  EXPECT_EQ(told, allocated);
}

TEST_P(RandomAnalysisTest, KeepsTheGreatestMomentsOfTheTimeline) {
  record(GetParam(), 400);
  recording::Reader reader(path_);
  Choice choice;
  choice.points = 2 + GetParam() % 40;
  choice.moments = 2 + GetParam() % 7;
  const Analysis analysis = analyse(reader, choice);
  for (const DeviceUse& use : analysis.devices) {
    EXPECT_LE(use.timeline.size(), choice.points);
    EXPECT_LE(use.moments.size(), choice.moments);
    const auto sums_of = [&](const State& state) {
      const auto found = state.devices.find(use.device);
      return found == state.devices.end() ? Sums{} : found->second;
    };
    // What a point says was so then: after an event of that time, or of the last one before it.
    for (const Moment& moment : use.moments) {
      bool found = false;
      for (size_t i = 0; i < witness_.states.size() && !found; ++i) {
        const State& state = witness_.states[i];
        const bool lasts =
            i + 1 == witness_.states.size() || witness_.states[i + 1].time_ns >= moment.time_ns;
        const auto parts = state.parts.find(use.device);
        found = state.time_ns <= moment.time_ns && lasts && sums_of(state) == moment.sums &&
                as_map(moment.parts) == (parts == state.parts.end() ? Parts{} : parts->second);
      }
      EXPECT_TRUE(found) << "nothing was so at " << moment.time_ns;
    }
    uint64_t most = 0;
    for (size_t i = 0; i < use.timeline.size(); ++i) {
      const Point& point = use.timeline[i];
      most = std::max(most, point.sums.taken);
      const Point& next = use.timeline[std::min(i + 1, use.timeline.size() - 1)];
      EXPECT_LE(point.time_ns, next.time_ns);
      for (const State& state : witness_.states) {
        if (state.time_ns <= point.time_ns || state.time_ns >= next.time_ns) continue;
        EXPECT_LE(sums_of(state).taken, std::max(point.sums.taken, next.sums.taken))
            << "a greater moment was lost at " << state.time_ns;
      }
      uint64_t of_processes = 0;
      for (const ProcessShare& share : point.by_process) of_processes += share.taken;
      EXPECT_EQ(of_processes, point.sums.taken);
    }
    EXPECT_EQ(most, use.taken.bytes);
  }
}

TEST_P(RandomAnalysisTest, AddsUpCallSitesSizesAndPools) {
  record(GetParam(), 400);
  recording::Reader reader(path_);
  const Analysis analysis = analyse(reader);
  struct Total {
    uint64_t allocations = 0, bytes = 0, releases = 0, left = 0, left_bytes = 0, lived_ns = 0;
  };
  std::map<std::tuple<uint32_t, uint32_t, MemoryKind, uint32_t>, Total> totals;
  std::map<std::pair<uint32_t, int>, uint64_t> sizes;
  for (const Witness::Life& life : witness_.lives) {
    const Event& event = life.event;
    Total& total = totals[{event.process, event.device, event.kind, event.stack}];
    ++total.allocations;
    total.bytes += event.bytes;
    (life.left ? total.left : total.releases) += 1;
    total.left_bytes += life.left ? event.bytes : 0;
    total.lived_ns += life.lived_ns;
    int size_class = 0;
    while (event.bytes >> (size_class + 1) != 0) ++size_class;
    ++sizes[{event.device, size_class}];
  }
  EXPECT_EQ(analysis.sites.size(), totals.size());
  for (const Site& site : analysis.sites) {
    const Total& total = totals[{site.process, site.device, site.kind, site.stack}];
    EXPECT_EQ(site.allocations, total.allocations);
    EXPECT_EQ(site.allocated_bytes, total.bytes);
    EXPECT_EQ(site.releases, total.releases);
    EXPECT_EQ(site.left_count, total.left);
    EXPECT_EQ(site.left_bytes, total.left_bytes);
    EXPECT_NEAR(static_cast<double>(site.mean_lifetime_ns),
                static_cast<double>(total.lived_ns) / static_cast<double>(total.allocations), 2);
  }
  for (const DeviceUse& use : analysis.devices) {
    for (int i = 0; i < 64; ++i) {
      EXPECT_EQ(use.sizes[static_cast<size_t>(i)].count, (sizes[{use.device, i}])) << "2^" << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomAnalysisTest, testing::Range(1U, 25U));

TEST_F(AnalysisTest, TellsAPoolsFragmentation) {
  recording::Writer writer(path_, {}, true);
  writer.add_process({1, 1, "p", 0});
  writer.add_device({"GPU-0", "", 1ULL << 36, 0});
  Event level;
  level.type = EventType::level;
  level.kind = MemoryKind::reserved;
  level.process = level.device = 0;
  level.owner = 7;
  Event allocation = level;
  allocation.type = EventType::allocated;
  allocation.kind = MemoryKind::pool;
  constexpr uint64_t kMiB = 1 << 20;
  // The pool grows a moment before the program has it, which is no fragmentation.
  level.taken = 64 * kMiB;
  writer.add(level);
  allocation.bytes = 64 * kMiB;
  allocation.address = 4096;
  allocation.time_ns = 10;
  writer.add(allocation);
  Event release = allocation;
  release.type = EventType::released;
  release.time_ns = 50 * kMs;
  writer.add(release);
  allocation.bytes = 4 * kMiB;
  allocation.time_ns = 90 * kMs;
  writer.add(allocation);
  writer.finish();
  recording::Reader reader(path_);
  const Analysis analysis = analyse(reader);
  ASSERT_EQ(analysis.pools.size(), 1U);
  const Pool& pool = analysis.pools[0];
  EXPECT_EQ(pool.owner, 7U);
  EXPECT_EQ(pool.peak.live, 64 * kMiB);
  EXPECT_EQ(pool.worst.time_ns, 50 * kMs);
  EXPECT_EQ(pool.worst.unused(), 64 * kMiB);
  EXPECT_EQ(pool.at_end.live, 4 * kMiB);
  EXPECT_EQ(analysis.devices[0].at_end.needed, 64 * kMiB) << "4 MiB live in the one chunk";
  EXPECT_EQ(analysis.devices[0].peak.by_kind[static_cast<size_t>(MemoryKind::pool)], 64 * kMiB)
      << "of the moments at which as much was taken, the one at which the most was used";
}

TEST_F(AnalysisTest, SurvivesEventsThatContradictEachOther) {
  std::mt19937_64 random(3);
  recording::Writer writer(path_, {}, true);
  writer.add_process({1, 1, "p", 0});
  writer.add_device({"GPU-0", "", UINT64_MAX, UINT64_MAX});
  for (int i = 0; i < 20'000; ++i) {
    Event event;
    event.type = static_cast<EventType>(1 + random() % 8);
    event.kind = static_cast<MemoryKind>(random() % recording::kMemoryKinds);
    event.process = random() % 2 == 0 ? 0 : kNone;
    event.device = random() % 2 == 0 ? 0 : kNone;
    for (uint64_t* number : {&event.bytes, &event.taken, &event.time_ns, &event.held, &event.cap}) {
      *number = random() >> random() % 64;
    }
    event.owner = random() % 3;
    event.address = random() % 16;
    writer.add(event);
  }
  writer.finish();
  recording::Reader reader(path_);
  EXPECT_EQ(analyse(reader).events, 20'000U);
}

TEST_F(AnalysisTest, ChoosesDevicesAndProcesses) {
  record(5, 300);
  recording::Reader reader(path_);
  Choice choice;
  choice.device = "GPU-1";
  choice.process = "101";
  const Analysis analysis = analyse(reader, choice);
  ASSERT_EQ(analysis.devices.size(), 1U);
  EXPECT_EQ(analysis.devices[0].device, 1U);
  uint64_t most = 0;
  for (const State& state : witness_.states) {
    const auto found = state.uses.find({1, 1});
    if (found != state.uses.end()) most = std::max(most, found->second.taken);
  }
  EXPECT_EQ(analysis.devices[0].taken.bytes, most);
  choice.device = "GPU-9";
  EXPECT_THROW(analyse(reader, choice), std::runtime_error);
  choice = {};
  choice.process = "nobody";
  EXPECT_THROW(analyse(reader, choice), std::runtime_error);
}

}  // namespace
}  // namespace fracgpu::tools::report
