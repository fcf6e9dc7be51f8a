// What a graph's allocations need at once, judged by drivers that share memory as they like:
// however they choose among what may be used again, they never need more than was said.
#include "shim/charge/graph_peak.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

namespace fracgpu {
namespace {

using Kind = GraphStep::Kind;

struct Made {
  std::vector<GraphStep> steps;
  std::vector<GraphEdge> edges;

  uint32_t allocate(uint64_t address, uint64_t units, std::vector<uint32_t> after = {}) {
    return add({address, units, 0, Kind::allocation}, after);
  }
  uint32_t release(uint64_t address, std::vector<uint32_t> after) {
    return add({address, 0, -1, Kind::release}, after);
  }
  uint32_t add(const GraphStep& step, const std::vector<uint32_t>& after) {
    const auto place = static_cast<uint32_t>(steps.size());
    steps.push_back(step);
    for (const uint32_t each : after) edges.push_back({each, place});
    return place;
  }
  uint64_t peak() const {
    uint64_t peaks[2] = {};
    EXPECT_TRUE(add_graph_peaks(steps.data(), steps.size(), edges.data(), edges.size(), peaks, 2));
    EXPECT_EQ(peaks[1], 0u);
    return peaks[0];
  }
};

TEST(GraphPeakTest, ChainsShareAndWhatMayRunAtOnceDoesNot) {
  Made chain;
  uint32_t last = chain.allocate(1, 30);
  last = chain.release(1, {last});
  last = chain.allocate(2, 50, {last});
  last = chain.release(2, {last});
  chain.allocate(3, 40, {last});
  EXPECT_EQ(chain.peak(), 50u);

  Made beside;
  beside.release(1, {beside.allocate(1, 30)});
  beside.release(2, {beside.allocate(2, 50)});
  EXPECT_EQ(beside.peak(), 80u);

  // Released, but nothing says that this is before the second.
  Made unordered;
  const uint32_t first = unordered.allocate(1, 30);
  unordered.release(1, {first});
  unordered.allocate(2, 30, {first});
  EXPECT_EQ(unordered.peak(), 60u);

  Made joined;
  const uint32_t one = joined.release(1, {joined.allocate(1, 30)});
  const uint32_t two = joined.release(2, {joined.allocate(2, 50)});
  joined.allocate(3, 75, {one, two});
  EXPECT_EQ(joined.peak(), 80u);
}

TEST(GraphPeakTest, MemoryOfAnotherGraphIsNoneOfItsOwn) {
  Made taker;
  taker.allocate(2, 30, {taker.release(1, {})});
  EXPECT_EQ(taker.peak(), 30u);
}

TEST(GraphPeakTest, StepsInACircleHaveNoAnswer) {
  const GraphStep steps[2] = {};
  const GraphEdge edges[] = {{0, 1}, {1, 0}};
  uint64_t peaks[1] = {};
  EXPECT_FALSE(add_graph_peaks(steps, 2, edges, 2, peaks, 1));
  const GraphEdge beyond[] = {{0, 2}};
  EXPECT_FALSE(add_graph_peaks(steps, 2, beyond, 1, peaks, 1));
}

// A driver that never grows while some block that was released before is not used again; which one
// it takes is up to chance.
uint64_t need_of_a_driver(const Made& graph, std::mt19937_64& random) {
  const size_t count = graph.steps.size();
  std::vector<std::vector<bool>> before(count, std::vector<bool>(count));
  for (size_t to = 0; to < count; ++to) {  // the steps are in an order in which they may run
    for (const GraphEdge& edge : graph.edges) {
      if (edge.to != to) continue;
      before[to][edge.from] = true;
      for (size_t i = 0; i < count; ++i) before[to][i] = before[to][i] || before[edge.from][i];
    }
  }
  std::vector<uint64_t> left(count);
  uint64_t need = 0;
  for (size_t at = 0; at < count; ++at) {
    const GraphStep& step = graph.steps[at];
    if (step.kind == Kind::release) {
      for (const GraphStep& made : graph.steps) {
        if (made.kind == Kind::allocation && made.address == step.address) left[at] = made.units;
      }
    }
    if (step.kind != Kind::allocation) continue;
    std::vector<size_t> usable;
    for (size_t i = 0; i < at; ++i) {
      if (left[i] > 0 && before[at][i]) usable.push_back(i);
    }
    std::shuffle(usable.begin(), usable.end(), random);
    uint64_t missing = step.units;
    for (const size_t i : usable) {
      const uint64_t taken = std::min(missing, left[i]);
      missing -= taken;
      left[i] -= taken;
    }
    need += missing;
  }
  return need;
}

TEST(GraphPeakTest, IsEnoughForEveryDriver) {
  std::mt19937_64 random(20);
  uint64_t shared = 0;
  // Sanitizers get through fewer.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (int round = 0; round < 3000 && std::chrono::steady_clock::now() < end; ++round) {
    Made graph;
    uint64_t sum = 0;
    std::vector<uint32_t> live;
    for (uint64_t n = 2 + random() % 30; n > 0; --n) {
      std::vector<uint32_t> after;
      for (uint32_t i = 0; i < graph.steps.size(); ++i) {
        if (random() % 4 == 0) after.push_back(i);
      }
      const uint64_t what = random() % 5;
      if (what == 0 && !live.empty()) {
        after.push_back(live.back());
        graph.release(graph.steps[live.back()].address, after);
        live.pop_back();
      } else if (what == 1) {
        graph.add({}, after);
      } else {
        const uint64_t units = 1 + random() % 100;
        sum += units;
        live.push_back(graph.allocate(graph.steps.size() + 1, units, after));
        std::shuffle(live.begin(), live.end(), random);
      }
    }
    const uint64_t peak = graph.peak();
    ASSERT_LE(peak, sum);
    shared += sum - peak;
    for (int driver = 0; driver < 5; ++driver) ASSERT_GE(peak, need_of_a_driver(graph, random));
  }
  EXPECT_GT(shared, 0u);
}

}  // namespace
}  // namespace fracgpu
