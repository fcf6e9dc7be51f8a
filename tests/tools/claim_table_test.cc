// The claim table under contention: processes that enter and leave as fast as they can, and are
// judged by counters of their own.
#include "tools/claims/claim_table.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>

namespace fracgpu::tools {
namespace {

constexpr uint32_t kGpus = 2;

struct Counters {
  std::atomic<uint32_t> held[kGpus];
  std::atomic<uint32_t> most, served;
};

class ClaimTableTest : public testing::Test {
 protected:
  ClaimTableTest() : path_("/dev/shm/fracgpu-book-" + std::to_string(getpid()) + ".test") {
    setenv("FRACGPU_BOOK", path_.c_str(), 1);
    void* bytes =
        mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    counters_ = new (bytes) Counters{};
  }
  ~ClaimTableTest() override {
    munmap(counters_, sizeof(Counters));
    unlink(path_.c_str());
  }

  // Enters, and leaves again, as often; what it holds meanwhile goes through the counters.
  void contend(uint32_t seed, int rounds) {
    std::mt19937 random(seed);
    ClaimTable table;
    for (int round = 0; round < rounds; ++round) {
      ClaimRequest wanted;
      wanted.tenant = "race-" + std::to_string(seed) + "-" + std::to_string(round);
      wanted.gpus = {"GPU-a", "GPU-b"};
      wanted.each = 1 + random() % 8;
      wanted.count = 1;
      Claim claim = table.enter(wanted);
      std::vector<Share> shares;
      if (table.served(claim, shares)) {
        counters_->served++;
        for (const Share& share : shares) {
          auto& held = counters_->held[share.key == "GPU-b"];
          const uint32_t now = held.fetch_add(share.eighths) + share.eighths;
          uint32_t before = counters_->most.load();
          while (now > before && !counters_->most.compare_exchange_weak(before, now)) {
          }
        }
        sched_yield();
        for (const Share& share : shares) {
          counters_->held[share.key == "GPU-b"].fetch_sub(share.eighths);
        }
      }
      table.leave(std::move(claim));
    }
  }

  std::string path_;
  Counters* counters_;
};

TEST_F(ClaimTableTest, NeverGiveAGpuTwice) {
  constexpr uint32_t kProcesses = 8;
  for (uint32_t seed = 0; seed < kProcesses; ++seed) {
    if (fork() == 0) {
      contend(seed, 500);
      _exit(0);
    }
  }
  for (uint32_t i = 0; i < kProcesses; ++i) {
    int status = -1;
    wait(&status);
    EXPECT_EQ(status, 0);
  }
  EXPECT_LE(counters_->most.load(), claim_table_layout::kEighths);
  EXPECT_EQ(counters_->most.load(), claim_table_layout::kEighths)
      << "too little went on to judge by";
  EXPECT_GT(counters_->served.load(), 500u);
  EXPECT_TRUE(ClaimTable().launches().empty());
}

}  // namespace
}  // namespace fracgpu::tools
