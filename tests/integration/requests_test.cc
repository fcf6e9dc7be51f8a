// Requests to RM by NVIDIA's libraries beside libcuda, which hooks/cuda/other_libraries.cc watches.
// A stub of such a library makes them, on a simulated RM whose memory is the node's; see
// tests/clients/rm. In sanitizer builds too, in which NVIDIA's own libraries cannot run.
#include <signal.h>

#include <random>

#include "tests/integration/property.h"

namespace fracgpu::test {
namespace {

constexpr int kCapMib = 512;
const int kMoves = sanitized() ? 300 : 1200;  // of a thread in a phase

const Environment kFailing = {{"RANDOM_REQUESTS_FAILING", "5"},
                              {"UBSAN_OPTIONS", "halt_on_error=1"}};

class RequestsProperty : public PropertyRig {
 protected:
  RequestsProperty() : PropertyRig("tiny", 16, TEST_RANDOM_REQUESTS, kCapMib) {}
};

TEST_P(RequestsProperty, LedgerEqualsTheNodeWheneverAllStandStill) {
  run_phases(2, 3, kMoves, kFailing);
}

INSTANTIATE_TEST_SUITE_P(Family, RequestsProperty,
                         testing::Values(Mix{"Own", "own", 64}, Mix{"Small", "own", 1},
                                         Mix{"Shared", "shared", 64}),
                         [](const auto& info) { return std::string(info.param.name); });

using RequestsHostile = RequestsProperty;

TEST_P(RequestsHostile, LedgerEqualsTheNodeWheneverAllStandStill) {
  run_phases(2, 1, 2 * kMoves, kFailing);
}

INSTANTIATE_TEST_SUITE_P(Family, RequestsHostile, testing::Values(Mix{"Chaos", "chaos", 64}),
                         [](const auto& info) { return std::string(info.param.name); });

// A single process and thread, of which each refusal can be judged.
using RequestsAlone = RequestsProperty;

TEST_P(RequestsAlone, NothingIsRefusedThatFits) {
  run_phases(1, 1, 3 * kMoves, kFailing + Environment{{"RANDOM_CALLS_ALONE", "1"}});
}

INSTANTIATE_TEST_SUITE_P(Family, RequestsAlone,
                         testing::Values(Mix{"Own", "own", 256}, Mix{"Small", "own", 1}),
                         [](const auto& info) { return std::string(info.param.name); });

// CUDA in the same process, whose readings of the driver's report find the requested memory too.
class RequestsBesideCuda : public PropertyRig {
 protected:
  RequestsBesideCuda() : PropertyRig("a100-40gb", 256, TEST_RANDOM_REQUESTS, 2048) {}
};

TEST_P(RequestsBesideCuda, LedgerEqualsTheNodeWheneverAllStandStill) {
  run_phases(2, 2, kMoves, kFailing + Environment{{"RANDOM_REQUESTS_CUDA", "1"}});
}

INSTANTIATE_TEST_SUITE_P(Family, RequestsBesideCuda,
                         testing::Values(Mix{"Own", "own cuda", 128},
                                         Mix{"Shared", "shared cuda", 128}),
                         [](const auto& info) { return std::string(info.param.name); });

// A child holds nothing of its parent's; what it holds when it is killed is free again.
using RequestsForked = RequestsProperty;

TEST_P(RequestsForked, LedgerEqualsTheNodeWheneverAllStandStill) {
  run_phases(2, 1, sanitized() ? 8 : 20);
}

INSTANTIATE_TEST_SUITE_P(Family, RequestsForked, testing::Values(Mix{"Own", "own forking", 64}),
                         [](const auto& info) { return std::string(info.param.name); });

class RequestsStorm : public Rig {
 protected:
  RequestsStorm() : Rig("tiny", 16) {}

  std::unique_ptr<Program> start(unsigned seed, int threads, int moves, int mib,
                                 const std::vector<std::string>& families,
                                 const Environment& extra = {}) const {
    std::vector<std::string> args = {TEST_RANDOM_REQUESTS,    std::to_string(seed),
                                     std::to_string(threads), "1",
                                     std::to_string(moves),   std::to_string(mib)};
    args.insert(args.end(), families.begin(), families.end());
    return std::make_unique<Program>(args, capped(std::to_string(kCapMib) + "MiB") +
                                               watched(kCapMib * kMiB) +
                                               Environment{{"FRACGPU_LOG", "off"}} + extra);
  }
};

// Threads that use each other's objects while these end, and handles that they have only guessed.
// What is charged then is not judged.
TEST_F(RequestsStorm, RacesForHandlesEndNoProcess) {
  const Outcome outcome = [&] {
    auto program = start(1, 4, 10 * kMoves, 64, {"chaos"}, kFailing);
    for (int i = 0; i < 3; ++i) program->go_on();
    return program->finish();
  }();
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
}

TEST_F(RequestsStorm, ProcessesThatAreKilledLeaveNothingBehind) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const char* const campaign = getenv("FRACGPU_CAMPAIGN");
  const int kills = campaign != nullptr ? std::max(400, atoi(campaign)) : sanitized() ? 4 : 12;
  const auto start_one = [&] {
    const bool is_hostile = random() % 3 == 0;
    auto program = start(random(), is_hostile ? 1 : 2, 100'000'000, 64,
                         {is_hostile ? "chaos" : "own"}, kFailing);
    EXPECT_TRUE(program->read_line().starts_with("up "));
    program->go_on();
    return program;
  };
  std::vector<std::unique_ptr<Program>> programs;
  for (int i = 0; i < 4; ++i) programs.push_back(start_one());
  for (int i = 0; i < kills; ++i) {
    auto& victim = programs[random() % programs.size()];
    for (unsigned spin = random() % 3000; spin > 0; --spin) sched_yield();
    expect_all_is_charged(*victim);
    victim->kill(SIGKILL);
    EXPECT_EQ(victim->finish().status, 128 + SIGKILL) << "a process ended by itself";
    victim = start_one();
  }
  for (auto& program : programs) {
    program->kill(SIGKILL);
    program->finish();
  }
  EXPECT_LE(node_->tenant_high_water(0, tenant_), kCapMib * kMiB) << evidence();

  auto last = start(1, 1, 1, 2, {"fill"});
  EXPECT_TRUE(last->read_line().starts_with("up "));
  last->go_on();
  const std::string line = last->read_line();
  EXPECT_EQ(field(line, "done="), kCapMib / 2 + 1) << line;
  EXPECT_EQ(field(line, "refused="), 1) << line;
  EXPECT_EQ(node_->tenant_used(0, tenant_), kCapMib * kMiB);
  EXPECT_EQ(ledger().total_held(key()), kCapMib * kMiB);
}

}  // namespace
}  // namespace fracgpu::test
