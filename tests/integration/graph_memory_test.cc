// Graphs that allocate need what their allocations need at once, and nothing for another launch
// while that is there. The node's high-water mark says whether the cap was kept.
#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

struct Case {
  const char* name;
  const char* line;  // the options, rounds and graphs of graph_loop
};

void PrintTo(const Case& each, std::ostream* stream) {
  *stream << each.line;
}

class GraphLoop : public Rig, public testing::WithParamInterface<Case> {
 protected:
  GraphLoop() : Rig("a100-40gb", 256) {}

  Outcome loop(const Environment& extra) const {
    std::vector<std::string> command{TEST_GRAPH_LOOP};
    for (const std::string& word : words(GetParam().line)) command.push_back(word);
    return Program(command, capped("8GiB") + extra).finish();
  }
  void expect(const std::string& end, const Environment& extra) {
    const Outcome outcome = loop(extra);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_NE(outcome.out.find(end), std::string::npos) << outcome.out << outcome.err;
    EXPECT_LE(node_->tenant_high_water(0, tenant_), 8 * kGiB);
  }
};

// What the library would do for want of room is made to fail: none of it may be needed.
class GraphShares : public GraphLoop {};
TEST_P(GraphShares, NeedsNoRoomTwice) {
  expect(" refused=0 bad=0", {{"FRACGPU_SIM_FAIL",
                               "cuDeviceGraphMemTrim:1+=999,cuStreamQuery:1+=999,"
                               "cuStreamSynchronize:1+=999"},
                              {"FRACGPU_SIM_KERNEL_MS", "1"}});
}
INSTANTIATE_TEST_SUITE_P(Of, GraphShares,
                         testing::Values(Case{"Chain", "5 3000,3000,3000,3000"},
                                         Case{"Captured", "--capture 5 3000,3000,3000,3000"},
                                         Case{"ForkAndJoin", "5 3000+2000,5000,1000+3500"},
                                         Case{"Relaunch", "5 5000"},
                                         Case{"TwoGraphs", "5 5000 6000"},
                                         Case{"LeftBehind", "--leave 5 5000"},
                                         Case{"Updated", "--update 5 3000,5000"}),
                         [](const auto& info) { return std::string(info.param.name); });

// Graphs that may run at once do not share; where there is no room for both, one waits.
class GraphWaits : public GraphLoop {};
TEST_P(GraphWaits, IsBetterThanARefusal) {
  expect(" refused=0 bad=0", {{"FRACGPU_SIM_KERNEL_MS", "5"}});
}
INSTANTIATE_TEST_SUITE_P(Of, GraphWaits,
                         testing::Values(Case{"TwoStreams", "--streams=2 5 5000 6000"},
                                         Case{"LeftBehindByTwo", "--leave 5 5000 6000"}),
                         [](const auto& info) { return std::string(info.param.name); });

// Nothing says that one of these comes before the other.
class GraphRefused : public GraphLoop {};
TEST_P(GraphRefused, WhereItNeedsMoreThanTheCap) {
  expect("launched=0 refused=2 bad=0", {});
}
INSTANTIATE_TEST_SUITE_P(Of, GraphRefused,
                         testing::Values(Case{"Unordered", "2 3000+3000+3000"},
                                         Case{"Held", "--leave 2 3000,3000,3000"},
                                         Case{"Large", "2 9000"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fracgpu::test
