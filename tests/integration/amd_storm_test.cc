// Processes on AMD's runtime at their cap, with random kills: never above it, and in the end all of
// it can be had. On kernels that tell of the dead too early or too late, and in PID namespaces
// where they do not tell at all.
#include <sched.h>
#include <signal.h>

#include <chrono>
#include <random>

#include "tests/integration/amd_rig.h"

namespace fracgpu::test {
namespace {

struct Kernel {
  const char* name;
  const char* profile;
  uint64_t linger_ms;  // between a process's end and that of its memory or of its place in the list
  bool own_namespaces;
};

void PrintTo(const Kernel& kernel, std::ostream* stream) {
  *stream << kernel.name;
}

class AmdStorm : public AmdRig, public testing::WithParamInterface<Kernel> {
 protected:
  AmdStorm() : AmdRig(GetParam().profile) {
    node_->file()->header.linger_ns = GetParam().linger_ms * 1000000;
  }
  // In a PID namespace of its own if that is asked for, where it dies with the one that is killed.
  std::vector<std::string> wrapped(std::vector<std::string> command) const {
    if (GetParam().own_namespaces) {
      const std::vector<std::string> around = {"unshare", "--pid", "--fork", "--kill-child"};
      command.insert(command.begin(), around.begin(), around.end());
    }
    return command;
  }
  // What the dead have is back.
  bool is_empty() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (node_->tenant_used(0, tenant_) > 0) {
      if (std::chrono::steady_clock::now() > end) return false;
      sched_yield();
    }
    return true;
  }
};

TEST_P(AmdStorm, KilledAtRandomNothingIsLostAndTheCapHolds) {
  if (GetParam().own_namespaces && !can_make_pid_namespace())
    GTEST_SKIP() << "no PID namespace can be made here";
  constexpr int kProcesses = 5;
  // A death costs more where memory comes back late.
  const int usual = GetParam().linger_ms == 0 && !GetParam().own_namespaces ? 30 : 12;
  const int kills = getenv("FRACGPU_CAMPAIGN") != nullptr ? 500 : usual;
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const auto start_random = [&] {
    return std::make_unique<Program>(
        wrapped({TEST_RANDOM_HIP, std::to_string(random()), "2", "1000", "100000", "24", "linear",
                 "hsa", "vmem"}),
        capped("256MiB") + watched(256 * kMiB) + Environment{{"FRACGPU_LOG", "off"}});
  };
  std::vector<std::unique_ptr<Program>> programs;
  for (int i = 0; i < kProcesses; ++i) programs.push_back(start_random());
  for (int i = 0; i < kills; ++i) {
    auto& victim = programs[random() % programs.size()];
    // At the cap a newcomer may find no room even for its first block; it then ends by itself.
    if (victim->read_line().starts_with("up ")) victim->go_on();
    for (unsigned spin = random() % 3000; spin > 0; --spin) sched_yield();
    if (!GetParam().own_namespaces) expect_all_is_charged(*victim);
    victim->kill(SIGKILL);
    victim->finish();
    victim = start_random();
  }
  // Until it is up, `unshare` may die without its child.
  for (auto& program : programs) program->read_line();
  programs.clear();
  EXPECT_TRUE(is_empty());
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 256 * kMiB) << evidence();
  auto last = start("256MiB", "init fill 4MiB wait");
  const auto lines = last->read_until_ready();
  EXPECT_GE(field(lines.back(), "count="), 62) << "something leaked";
  // The dead whose rest was not in the way of a block are waited for still; who asks takes it back.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (ledger().total_held(key()) != node_->tenant_used(0, tenant_) &&
         std::chrono::steady_clock::now() < end) {
    last->go_on_with("meminfo wait");
    last->read_until_ready();
  }
  EXPECT_EQ(ledger().total_held(key()), node_->tenant_used(0, tenant_)) << ledger().describe(key());
}

// The kernel has unlisted the process, and does not come to freeing its memory.
class AmdStuckKernel : public AmdRig {
 protected:
  AmdStuckKernel() : AmdRig("2xtiny-amd@unlists-first") {
    node_->file()->header.linger_ns = 3'600'000'000'000;
  }
};

TEST_F(AmdStuckKernel, MemoryOfTheDeadIsNotLostForEver) {
  auto survivor = start("96MiB", "init malloc 1MiB wait");
  ASSERT_FALSE(survivor->read_until_ready().empty());
  auto victim = start("96MiB", "init malloc 64MiB device 1 malloc 64MiB wait");
  ASSERT_EQ(field(victim->read_until_ready().back(), "rc="), 0);
  victim->kill(SIGKILL);
  victim->finish();
  survivor->go_on_with("malloc 64MiB wait");
  EXPECT_NE(field(survivor->read_until_ready().back(), "rc="), 0) << "it is held still";
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 96 * kMiB);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  long long refused = 1;
  while (refused != 0 && std::chrono::steady_clock::now() < end) {
    survivor->go_on_with("malloc 64MiB wait");
    refused = field(survivor->read_until_ready().back(), "rc=");
  }
  EXPECT_EQ(refused, 0);
  survivor->finish();
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, AmdStorm,
    testing::Values(Kernel{"Prompt", "tiny-amd", 0, false},
                    Kernel{"UnlistsFirst", "tiny-amd@unlists-first", 100, false},
                    Kernel{"UnlistsLate", "tiny-amd@unlists-late", 400, false},
                    Kernel{"Namespaces", "tiny-amd", 0, true},
                    Kernel{"NamespacesAndLate", "tiny-amd@unlists-first", 100, true}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fracgpu::test
