// Loops of allocations and frees in stream order that need less than the cap, though what they ask
// for in all is more. The driver takes memory again that was freed earlier on the same stream, at
// once (CUDA programming guide, "Stream Ordered Memory Allocator"), so the cap must not be in the
// way. The node's high-water mark says whether the cap was kept.
#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

struct Case {
  const char* name;
  const char* line;  // the options and the pattern of pool_loop
};

void PrintTo(const Case& each, std::ostream* stream) {
  *stream << each.line;
}

class PoolLoop : public Rig {
 protected:
  PoolLoop() : Rig("a100-40gb", 256) {}

  Outcome loop(const std::string& line, const Environment& extra = {}) const {
    std::vector<std::string> command{TEST_POOL_LOOP};
    for (const std::string& word : words(line)) command.push_back(word);
    return Program(command, capped("8GiB") + extra).finish();
  }
  void expect_within_cap() { EXPECT_LE(node_->tenant_high_water(0, tenant_), 8 * kGiB); }
};

// Both have taken their memory before either is charged: what is reserved for one is no reason to
// charge what the other one took once more.
TEST_F(PoolLoop, TwoThreadsThatGrowItAtOnceFitBoth) {
  Program program(
      {TEST_MEETING_CLIENT, "pool"},
      capped("320MiB") + Environment{{"FRACGPU_SIM_AWAIT",
                                      "end of cuMemAllocAsync=end of cuMemAllocFromPoolAsync,"
                                      "cuMemAllocFromPoolAsync=cuMemAllocAsync,"
                                      "end of cuMemAllocFromPoolAsync=cuCtxGetId"}});
  const auto lines = program.read_until_ready();
  EXPECT_TRUE(lines.empty()) << lines.back();
  expect_books_agree(program.pid(), "grown");
  EXPECT_EQ(node_->used_by_pid(0, program.pid()), (256 + 64) * kMiB);
  program.go_on();
  EXPECT_EQ(program.finish().err, "");
}

class PoolReuse : public PoolLoop, public testing::WithParamInterface<Case> {};

// What the library would do for want of room is made to fail: none of it may be needed.
TEST_P(PoolReuse, NeedsNoRoomTwice) {
  for (const char* keep : {"", "--keep "}) {
    const Outcome outcome =
        loop(keep + std::string(GetParam().line),
             {{"FRACGPU_SIM_FAIL",
               "cuMemPoolTrimTo:1+=999,cuStreamQuery:1+=999,cuStreamSynchronize:1+=999"}});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_NE(outcome.out.find(" refused=0 bad=0 shrunk=0"), std::string::npos)
        << keep << outcome.out << outcome.err;
    expect_within_cap();
  }
}

// What the pool has is not what the driver is sure to take again, and there is no room for more: it
// is waited for, and nothing is refused that fits when all that was freed is gone.
class PoolWait : public PoolLoop, public testing::WithParamInterface<Case> {};

TEST_P(PoolWait, IsBetterThanARefusal) {
  for (const char* keep : {"", "--keep "}) {
    const Outcome outcome =
        loop(keep + std::string(GetParam().line), {{"FRACGPU_SIM_KERNEL_MS", "5"}});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_NE(outcome.out.find(" refused=0 bad=0 "), std::string::npos)
        << keep << outcome.out << outcome.err;
    expect_within_cap();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Of, PoolWait,
    testing::Values(Case{"Growing", "turn 5 3000 5120 7000"}, Case{"Pieces", "turn 5 5120 3000 1"},
                    Case{"TwoStreams", "follow 10 5120"}, Case{"Handover", "handover 10 5120"},
                    Case{"EarlyEvent", "early 10 5120"},
                    Case{"NoHandover", "--alone handover 10 5120"},
                    Case{"Legacy", "--stream=legacy turn 5 5120 3000 1"},
                    Case{"PerThread", "--stream=unnamed turn 5 5120 3000 1"},
                    Case{"Synchronised", "--wait=stream turn 5 5120 3000 1"},
                    Case{
                        "FortyStreams",
                        "streams 2 150 150 150 150 150 150 150 150 150 150 150 150 150 150 150 150 "
                        "150 150 150 150 150 150 150 150 150 150 150 150 150 150 150 150 150 150 "
                        "150 150 150 150 150 150 6400"},
                    Case{"AfterAnEvent", "--wait=event --pool=own turn 5 5120 3000 1"},
                    Case{"FourStreamsOfThreads", "--threads=4 --stream=unnamed turn 5 5120 3000"}),
    [](const auto& info) { return std::string(info.param.name); });

// A pool that ends keeps what its streams have not freed yet, and without NVML nobody tells how
// long.
TEST_F(PoolLoop, APoolThatEndsWithoutNvmlIsStillUnderTheCap) {
  const Outcome outcome = Program({TEST_REPEAT_CLIENT, "pools", "5120"},
                                  capped("8GiB") + Environment{{"FRACGPU_NVML", "off"},
                                                               {"FRACGPU_SIM_KERNEL_MS", "20"}})
                              .finish();
  EXPECT_EQ(outcome.out, "pools rc=0\n") << outcome.err;
  expect_within_cap();
}

// A stream that is never done is not waited for for ever, and what was asked for is refused.
TEST_F(PoolLoop, AStreamThatIsNotDoneIsGivenUp) {
  const Outcome outcome = loop("turn 1 5120 7000", {{"FRACGPU_SIM_FAIL", "cuStreamQuery:1+=600"}});
  EXPECT_NE(outcome.out.find("allocated=1 refused=1 bad=0"), std::string::npos) << outcome.out;
  expect_within_cap();
}

INSTANTIATE_TEST_SUITE_P(
    Of, PoolReuse,
    testing::Values(Case{"OneSize", "turn 20 5120"}, Case{"Chain", "chain 20 3000 4000"},
                    Case{"Many", "chain 20 900 800 700 1000 2000 2400"},
                    Case{"TwoStreams", "streams 20 3500 3500"},
                    Case{"Handover", "handover 20 5120"},
                    Case{"HandoverOfOwnPool", "--pool=own handover 20 5120"},

                    Case{"Legacy", "--stream=legacy turn 20 5120"},
                    Case{"PerThread", "--stream=thread turn 20 5120"},
                    Case{"PerThreadUnnamed", "--stream=unnamed turn 20 5120"},
                    Case{"OwnPool", "--pool=own turn 20 5120"},
                    Case{"OwnPoolUnnamed", "--pool=own --stream=unnamed chain 20 5120 1024"},
                    Case{"FourThreads", "--threads=4 --stream=legacy turn 20 5120"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fracgpu::test
