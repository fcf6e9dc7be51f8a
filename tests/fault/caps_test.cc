// Caps that change while memory is reserved: nothing is granted above the cap in force, what is
// held drains, and devices do not disturb each other.
#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "tests/fault/shared.h"

namespace fracgpu::fault {
namespace {

constexpr uint64_t kCap = 100000;

TEST(LedgerCaps, LoweredBelowUseGrantsNothingUntilUseHasDrained) {
  ScratchTenant tenant;
  Member a, b;
  ASSERT_TRUE(a.join(tenant, kCap) && b.join(tenant, kCap));
  ASSERT_TRUE(a.reserve(50000) && b.reserve(30000));
  ASSERT_TRUE(a.ledger->set_cap(a.device, 60000 * layout::kUnit, a.error));
  EXPECT_FALSE(b.reserve(1));
  a.release(10000);
  EXPECT_FALSE(a.reserve(1)) << "70000 of 60000 units are in use yet";
  EXPECT_FALSE(b.reserve(1));
  a.release(15000);
  EXPECT_TRUE(a.reserve(3000));
  EXPECT_TRUE(b.reserve(2000));
  EXPECT_FALSE(a.reserve(1));
  EXPECT_EQ(a.ledger->held(a.device), 60000u);
}

TEST(LedgerCaps, OverdraftDrainsBeforeAnythingIsGranted) {
  ScratchTenant tenant;
  Member a, b;
  ASSERT_TRUE(a.join(tenant, kCap) && b.join(tenant, kCap));
  ASSERT_TRUE(a.reserve(90000));
  b.ledger->charge_taken(b.device, 20000);
  a.release(5000);
  EXPECT_FALSE(a.reserve(1)) << "105000 of 100000 units are in use yet";
  a.release(5001);
  EXPECT_TRUE(a.reserve(1));
  EXPECT_FALSE(a.reserve(1));
}

TEST(LedgerCaps, RaisedTakesEffectAtOnce) {
  ScratchTenant tenant;
  Member a, b;
  ASSERT_TRUE(a.join(tenant, kCap) && b.join(tenant, kCap));
  ASSERT_TRUE(a.reserve(kCap));
  ASSERT_FALSE(b.reserve(1));
  ASSERT_TRUE(b.ledger->set_cap(b.device, 2 * kCap * layout::kUnit, b.error));
  EXPECT_TRUE(b.reserve(kCap));
  EXPECT_FALSE(a.reserve(1));
}

struct Load {
  // What a reservation may have been judged by: the highest cap in force since it began is at or
  // below this. Raised before the cap is, lowered after all who might have seen the old cap are
  // through, which `epoch` tells.
  std::atomic<uint64_t> bound[2];
  std::atomic<uint64_t> used[2];
  std::atomic<uint64_t> exceeded{0};
  std::atomic<uint64_t> granted{0};
  std::atomic<uint64_t> refused{0};
  std::atomic<uint64_t> waiting{0};  // workers at the barrier
  std::atomic<bool> hold{false};     // workers wait between two operations
  std::atomic<bool> stop{false};
};

// Reserves and releases on two devices until told to stop; pauses where it holds what it holds.
void work(Ledger& ledger, const int (&device)[2], Load& load, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> mine[2];
  while (!load.stop) {
    if (load.hold) {
      ++load.waiting;
      while (load.hold && !load.stop) sched_yield();
      --load.waiting;
      continue;
    }
    const size_t i = random() % 2;
    if (mine[i].empty() || random() % 2 == 0) {
      const uint64_t units = random() % (kCap / 16) + 1;
      Refusal refusal;
      if (!ledger.reserve(device[i], units, refusal)) {
        ++load.refused;
        continue;
      }
      // Counted after the grant and before the release: at or under what the ledger granted.
      if ((load.used[i] += units) > load.bound[i]) ++load.exceeded;
      ++load.granted;
      mine[i].push_back(units);
    } else {
      load.used[i] -= mine[i].back();
      ledger.release(device[i], mine[i].back());
      mine[i].pop_back();
    }
  }
  // What ends with the process would be granted to others while it is still counted here.
  for (const size_t i : {0, 1}) {
    for (const uint64_t units : mine[i]) {
      load.used[i] -= units;
      ledger.release(device[i], units);
    }
  }
}

TEST(LedgerCaps, ChangesUnderLoadOfProcessesAndThreads) {
  constexpr int kProcesses = 4, kThreads = 2, kChanges = 120;
  ScratchTenant tenant;
  Mapped<Load> load;
  Member admin;
  ASSERT_TRUE(admin.join(tenant, kCap, "GPU-a"));
  int device[2] = {admin.device, -1};
  ASSERT_TRUE(admin.add(kCap, "GPU-b"));
  device[1] = admin.device;
  for (auto& bound : load->bound) bound = kCap;
  std::vector<pid_t> children;
  for (unsigned process = 0; process < kProcesses; ++process) {
    children.push_back(spawn([&] {
      Member member;
      if (!member.join(tenant, kCap, "GPU-a") || !member.add(kCap, "GPU-b")) return 2;
      std::vector<std::thread> threads;
      for (unsigned t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] { work(*member.ledger, device, *load, process * 10 + t); });
      }
      for (auto& thread : threads) thread.join();
      return 0;
    }));
  }
  std::mt19937_64 random(5);
  for (int change = 0; change < kChanges; ++change) {
    const size_t i = random() % 2;
    const uint64_t cap = kCap / 4 + random() % kCap;
    const uint64_t before = admin.ledger->cap(device[i]);
    if (cap > before) load->bound[i] = cap;
    ASSERT_TRUE(admin.ledger->set_cap(device[i], cap * layout::kUnit, admin.error))
        << admin.error.view();
    const uint64_t target = load->granted + 300 + load->refused;
    while (load->granted + load->refused < target) sched_yield();
    if (cap < before) {
      // Everybody stands still: from here on no grant can have been judged by the old cap.
      load->hold = true;
      while (load->waiting < kProcesses * kThreads) sched_yield();
      const uint64_t used = load->used[i];
      EXPECT_EQ(admin.ledger->held(device[i]), used) << "the ledger differs from what was reserved";
      load->bound[i] = std::max(cap, used);
      load->hold = false;
      while (load->waiting > 0) sched_yield();
    }
  }
  load->stop = true;
  for (const pid_t child : children) EXPECT_EQ(exit_status(child), 0);
  EXPECT_EQ(load->exceeded, 0u) << "more was granted than the cap in force";
  EXPECT_GT(load->granted, 10000u);
  EXPECT_GT(load->refused, 1000u);
  std::printf("%d changes, %llu reservations granted and %llu refused\n", kChanges,
              static_cast<unsigned long long>(load->granted),
              static_cast<unsigned long long>(load->refused));
  for (const int i : device) {
    Refusal refusal;
    EXPECT_TRUE(admin.ledger->reserve(i, admin.ledger->cap(i), refusal)) << "something leaked";
    EXPECT_FALSE(admin.ledger->reserve(i, 1, refusal));
  }
}

}  // namespace
}  // namespace fracgpu::fault
