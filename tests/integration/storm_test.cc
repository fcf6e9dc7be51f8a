// A tenant of eight processes at its cap, with random kills: the node's high-water mark stays at or
// under the cap, and in the end the ledger equals the node's accounting.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>

#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

using Clock = std::chrono::steady_clock;
class StormRig : public Rig {
 protected:
  using Rig::Rig;
  // `init`: the client's command by which a process opens the driver.
  void rage(const std::string& init, int seconds, int least_kills);

  // Each process in a PID namespace of its own, where it dies with the one that is killed.
  bool own_namespaces_ = false;
};

class Storm : public StormRig {};

// With a driver of its own, and processes that open it in their own way.
struct Weather {
  const char* name;
  NvidiaDriver driver;
  const char* init;
};

void PrintTo(const Weather& weather, std::ostream* stream) {
  *stream << weather.name;
}

class DriverStorm : public StormRig, public testing::WithParamInterface<Weather> {
 protected:
  DriverStorm() : StormRig("a100-40gb", 256, GetParam().driver) {}
};

// In PID namespaces where every process is listed twice.
class NamespaceStorm : public StormRig {
 protected:
  NamespaceStorm() : StormRig("a100-40gb", 256, {"595.45.04", true}) { own_namespaces_ = true; }
};

int campaign_seconds() {
  if (getenv("FRACGPU_CAMPAIGN") != nullptr) return 60;
  return sanitized() ? 30 : 6;
}

// FRACGPU_CAMPAIGN may say how many. Ten thousand take five minutes on idle cores, which is more
// than ctest allows: run the program itself.
int least_kills() {
  const char* asked = getenv("FRACGPU_CAMPAIGN");
  return std::max(20, asked != nullptr ? atoi(asked) : 0);
}

void StormRig::rage(const std::string& init, int seconds, int least_kills) {
  constexpr uint64_t kCap = 6 * kGiB;
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const auto start = [&] {
    std::vector<std::string> command = {
        TEST_CLIENT, "--threads=2", init, "retain", "storm", "600", std::to_string(random()),
        "400MiB"};
    if (own_namespaces_) {
      const std::vector<std::string> around = {"unshare", "--pid", "--fork", "--kill-child"};
      command.insert(command.begin(), around.begin(), around.end());
    }
    return std::make_unique<Program>(command, capped("6GiB") + watched(kCap));
  };
  std::vector<std::unique_ptr<Program>> programs;
  for (int i = 0; i < 8; ++i) programs.push_back(start());
  int kills = 0;
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  // On a busy machine the time alone would be over before much has happened.
  while (Clock::now() < end || kills < least_kills) {
    // A child that has come up is killed at a random moment of its work.
    auto& victim = programs[random() % programs.size()];
    victim->read_line();  // init
    // At the cap a newcomer may find no room even for its context; it then ends by itself.
    const bool refused = field(victim->read_line(), "rc=") == 2;
    for (unsigned spin = random() % 3000; spin > 0; --spin) sched_yield();
    if (!own_namespaces_) expect_all_is_charged(*victim);
    victim->kill(SIGKILL);
    const int status = victim->finish().status;
    if (!refused) {
      EXPECT_EQ(status, 128 + SIGKILL) << "a process of the storm ended by itself";
    }
    ++kills;
    victim = start();
  }
  for (auto& program : programs) {
    // Until it is up, `unshare` may die without its child.
    if (own_namespaces_) program->read_line();
    program->kill(SIGKILL);
    program->finish();
  }
  std::printf("%d kills, high-water mark %llu of %llu bytes\n", kills,
              static_cast<unsigned long long>(node_->tenant_high_water(0, tenant_)),
              static_cast<unsigned long long>(kCap));
  EXPECT_LE(node_->tenant_high_water(0, tenant_), kCap) << evidence();
  EXPECT_GT(node_->tenant_high_water(0, tenant_), kCap * 9 / 10) << "the storm must reach the cap";
  const auto gone = Clock::now() + std::chrono::seconds(30);
  while (node_->tenant_used(0, tenant_) > 0 && Clock::now() < gone) sched_yield();
  EXPECT_EQ(node_->tenant_used(0, tenant_), 0u);

  auto last = start_client("6GiB", words("init retain fill 64MiB wait"));
  const auto lines = last->read_until_ready();
  EXPECT_EQ(field(lines[2], "count="), (6 * 1024 - 256) / 64) << "something leaked";
  EXPECT_EQ(ledger().total_held(uuid()), node_->tenant_used(0, tenant_));
}

TEST_F(Storm, EightProcessesWithKills) {
  rage("init", campaign_seconds(), least_kills());
}

TEST_P(DriverStorm, EightProcessesWithKills) {
  rage(GetParam().init, 1, 6);
}

INSTANTIATE_TEST_SUITE_P(Driver, DriverStorm,
                         testing::Values(Weather{"R525", {"525.60.13", false}, "init"},
                                         Weather{"R550", {"550.163.01", true}, "init"},
                                         Weather{"R550Closed", {"550.163.01", false}, "initbeside"},
                                         Weather{"R570Beside", {"570.124.06", true}, "initbeside"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(NamespaceStorm, EightProcessesWithKills) {
  if (!can_make_pid_namespace()) GTEST_SKIP() << "no PID namespace can be made here";
  rage("init", campaign_seconds(), least_kills());
}

// As a driver does that leaves the freeing to a worker.
TEST_F(NamespaceStorm, EightProcessesWithKillsAndMemoryThatLingers) {
  if (!can_make_pid_namespace()) GTEST_SKIP() << "no PID namespace can be made here";
  node_->file()->header.linger_ns = 100'000'000;
  rage("init", campaign_seconds(), least_kills());
}

TEST_F(NamespaceStorm, EightProcessesAtRestAgreeWithTheNode) {
  if (!can_make_pid_namespace()) GTEST_SKIP() << "no PID namespace can be made here";
  std::vector<std::unique_ptr<Program>> programs;
  for (int i = 0; i < 8; ++i) {
    programs.push_back(std::make_unique<Program>(
        std::vector<std::string>{"unshare", "--pid", "--fork", TEST_CLIENT, "--threads=2", "--keep",
                                 "init", "retain", "wait", "storm", "1", std::to_string(i),
                                 "400MiB", "wait", "alloc", "30GiB", "wait"},
        capped("6GiB") + watched(6 * kGiB) + Environment{{sim::kClientsVariable, "2"}}));
  }
  // Nobody fills the cap before all have their contexts.
  for (auto& program : programs) program->read_until_ready();
  for (auto& program : programs) program->go_on();
  for (auto& program : programs) ASSERT_FALSE(program->read_until_ready().empty());
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 6 * kGiB) << evidence();
  for (auto& program : programs) program->go_on();
  for (auto& program : programs) program->read_until_ready();
  EXPECT_EQ(ledger().total_held(uuid()), node_->tenant_used(0, tenant_));
}

TEST_F(Storm, ThreadsAtRestAgreeWithTheNode) {
  auto first = start_client(
      "6GiB", {"--threads=4", "--keep", "init", "retain", "storm", "1", "11", "100MiB", "wait"});
  auto second = start_client(
      "6GiB", {"--threads=4", "--keep", "init", "retain", "storm", "1", "12", "3MiB", "wait"});
  first->read_until_ready();
  second->read_until_ready();
  expect_books_agree(first->pid(), "first");
  expect_books_agree(second->pid(), "second");
  EXPECT_EQ(ledger().total_held(uuid()), node_->tenant_used(0, tenant_));
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 6 * kGiB);
}

}  // namespace
}  // namespace fracgpu::test
