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
using Storm = Rig;

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

TEST_F(Storm, EightProcessesWithKills) {
  constexpr uint64_t kCap = 6 * kGiB;
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const auto start = [&] {
    return start_client(
        "6GiB",
        {"--threads=2", "init", "retain", "storm", "600", std::to_string(random()), "400MiB"},
        watched(kCap));
  };
  std::vector<std::unique_ptr<Program>> programs;
  for (int i = 0; i < 8; ++i) programs.push_back(start());
  int kills = 0;
  const auto end = Clock::now() + std::chrono::seconds(campaign_seconds());
  // On a busy machine the time alone would be over before much has happened.
  while (Clock::now() < end || kills < least_kills()) {
    // A child that has come up is killed at a random moment of its work.
    auto& victim = programs[random() % programs.size()];
    victim->read_line();  // init
    // At the cap a newcomer may find no room even for its context; it then ends by itself.
    const bool refused = field(victim->read_line(), "rc=") == 2;
    for (unsigned spin = random() % 3000; spin > 0; --spin) sched_yield();
    expect_all_is_charged(*victim);
    victim->kill(SIGKILL);
    const int status = victim->finish().status;
    if (!refused) {
      EXPECT_EQ(status, 128 + SIGKILL) << "a process of the storm ended by itself";
    }
    ++kills;
    victim = start();
  }
  for (auto& program : programs) {
    program->kill(SIGKILL);
    program->finish();
  }
  std::printf("%d kills, high-water mark %llu of %llu bytes\n", kills,
              static_cast<unsigned long long>(node_->tenant_high_water(0, tenant_)),
              static_cast<unsigned long long>(kCap));
  EXPECT_LE(node_->tenant_high_water(0, tenant_), kCap) << evidence();
  EXPECT_GT(node_->tenant_high_water(0, tenant_), kCap * 9 / 10) << "the storm must reach the cap";
  EXPECT_EQ(node_->tenant_used(0, tenant_), 0u);

  auto last = start_client("6GiB", words("init retain fill 64MiB wait"));
  const auto lines = last->read_until_ready();
  EXPECT_EQ(field(lines[2], "count="), (6 * 1024 - 256) / 64) << "something leaked";
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
