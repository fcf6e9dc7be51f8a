// The ledger with real processes and threads: under load, killed, forked, and with their
// descriptors closed. An independent counter in shared memory plays the physical device.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "shim/ledger/ledger.h"
#include "tests/unit/scratch_tenant.h"

namespace fracgpu {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kCapUnits = 256 * kMiB / layout::kUnit;
constexpr char kKey[] = "GPU-test";

struct Shared {
  std::atomic<uint64_t> used{0};  // granted and not yet given back: never above what is held
  std::atomic<uint64_t> highest{0};
  std::atomic<uint64_t> granted{0};
  std::atomic<uint64_t> refused{0};
  std::atomic<bool> stop{false};
};

Shared* map_shared() {
  void* bytes =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (bytes) Shared;
}

bool join(Ledger& ledger, const ScratchTenant& tenant, int& device) {
  Message error;
  if (!ledger.join(tenant.name(), ProcessIdentity::of_self(), nullptr, error)) return false;
  device = ledger.device(kKey, kCapUnits * layout::kUnit, 80ull << 30, error);
  return device >= 0;
}

pid_t spawn(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  return child;
}

int exit_status(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Reserves and releases random amounts, keeping the counter between the two, so that at every
// moment the counter is at or below what the ledger has granted.
void storm(Ledger& ledger, int device, Shared& shared, unsigned seed, int steps) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> mine;
  for (int step = 0; step < steps && !shared.stop; ++step) {
    if (mine.empty() || random() % 2 == 0) {
      const uint64_t n = random() % (kCapUnits / 4) + 1;
      Refusal refusal;
      if (!ledger.reserve(device, n, refusal)) {
        ++shared.refused;
        continue;
      }
      const uint64_t now = shared.used += n;
      uint64_t highest = shared.highest;
      while (now > highest && !shared.highest.compare_exchange_weak(highest, now)) {
      }
      ++shared.granted;
      mine.push_back(n);
    } else {
      std::swap(mine[random() % mine.size()], mine.back());
      shared.used -= mine.back();
      ledger.release(device, mine.back());
      mine.pop_back();
    }
  }
  for (const uint64_t n : mine) {
    shared.used -= n;
    ledger.release(device, n);
  }
}

TEST(LedgerConcurrencyTest, ProcessesAndThreadsNeverExceedTheCap) {
  ScratchTenant tenant;
  Shared* shared = map_shared();
  std::vector<pid_t> children;
  for (unsigned process = 0; process < 6; ++process) {
    children.push_back(spawn([&, process] {
      auto ledger = std::make_unique<Ledger>();
      int device = -1;
      if (!join(*ledger, tenant, device)) return 2;
      std::vector<std::thread> threads;
      for (unsigned t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] { storm(*ledger, device, *shared, process * 100 + t, 4000); });
      }
      for (int looks = 0; looks < 20; ++looks) {
        if (!ledger->check_invariants().empty()) return 4;  // whatever all the others do
      }
      for (auto& thread : threads) thread.join();
      return ledger->held_by_self(device) == 0 ? 0 : 3;
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(exit_status(child), 0);
  EXPECT_LE(shared->highest, kCapUnits);
  EXPECT_EQ(shared->used, 0u);
  EXPECT_GT(shared->granted, 1000u);
  EXPECT_GT(shared->refused, 100u) << "the storm must reach the cap";
}

TEST(LedgerConcurrencyTest, KilledProcessesLeakNothing) {
  ScratchTenant tenant;
  Shared* shared = map_shared();
  std::mt19937 random(99);
  for (int round = 0; round < 60; ++round) {
    std::vector<pid_t> children;
    std::atomic<int>* joined = reinterpret_cast<std::atomic<int>*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (unsigned process = 0; process < 4; ++process) {
      children.push_back(spawn([&, process] {
        auto ledger = std::make_unique<Ledger>();
        int device = -1;
        if (!join(*ledger, tenant, device)) return 2;
        ++*joined;
        storm(*ledger, device, *shared, random() + process, 1 << 30);
        return 0;
      }));
    }
    while (*joined < 4) sched_yield();
    const auto done = [&] { return shared->granted + shared->refused; };
    const uint64_t enough = done() + random() % 5000;
    while (done() < enough) sched_yield();
    for (const pid_t child : children) kill(child, SIGKILL);
    for (const pid_t child : children) EXPECT_EQ(exit_status(child), 128 + SIGKILL);
    munmap(joined, 4096);

    Ledger survivor;
    int device = -1;
    ASSERT_TRUE(join(survivor, tenant, device));
    Refusal refusal;
    ASSERT_TRUE(survivor.reserve(device, kCapUnits, refusal))
        << "round " << round << ": " << refusal.held << " units are still held by the dead";
    ASSERT_FALSE(survivor.reserve(device, 1, refusal));
    ASSERT_EQ(survivor.check_invariants(), "");
    ASSERT_EQ(survivor.check_own_cells(), "");
  }
}

TEST(LedgerConcurrencyTest, OwnerThatClosedAllDescriptorsIsStillAlive) {
  ScratchTenant tenant;
  int to_parent[2], to_child[2];
  ASSERT_EQ(pipe(to_parent), 0);
  ASSERT_EQ(pipe(to_child), 0);
  const pid_t child = spawn([&] {
    auto ledger = std::make_unique<Ledger>();
    int device = -1;
    Refusal refusal;
    if (!join(*ledger, tenant, device) || !ledger->reserve(device, kCapUnits - 10, refusal))
      return 2;
    for (int fd = 3; fd < 1024; ++fd) {
      if (fd != to_parent[1] && fd != to_child[0]) close(fd);
    }
    char byte = 1;
    if (write(to_parent[1], &byte, 1) != 1 || read(to_child[0], &byte, 1) != 1) return 3;
    return ledger->reserve(device, 5, refusal) ? 0 : 4;  // and it can still use the ledger
  });
  char byte = 0;
  ASSERT_EQ(read(to_parent[0], &byte, 1), 1);
  Ledger other;
  int device = -1;
  ASSERT_TRUE(join(other, tenant, device));
  Refusal refusal;
  EXPECT_FALSE(other.reserve(device, 11, refusal)) << "a living owner's memory was given away";
  EXPECT_EQ(write(to_child[1], &byte, 1), 1);
  EXPECT_EQ(exit_status(child), 0);
  EXPECT_TRUE(other.reserve(device, kCapUnits, refusal));
}

TEST(LedgerConcurrencyTest, ForkedChildDoesNotKeepItsParentAlive) {
  ScratchTenant tenant;
  int to_parent[2], hold[2];
  ASSERT_EQ(pipe(to_parent), 0);
  ASSERT_EQ(pipe(hold), 0);
  const pid_t parent = spawn([&] {
    auto ledger = std::make_unique<Ledger>();
    int device = -1;
    Refusal refusal;
    if (!join(*ledger, tenant, device) || !ledger->reserve(device, kCapUnits, refusal)) return 2;
    if (fork() == 0) {
      char byte = 1;
      if (write(to_parent[1], &byte, 1) != 1) _exit(1);
      close(hold[1]);
      _exit(read(hold[0], &byte, 1) == 0 ? 0 : 1);  // lives until the test lets go
    }
    for (;;) pause();
  });
  char byte = 0;
  ASSERT_EQ(read(to_parent[0], &byte, 1), 1);
  kill(parent, SIGKILL);
  EXPECT_EQ(exit_status(parent), 128 + SIGKILL);
  Ledger other;
  int device = -1;
  ASSERT_TRUE(join(other, tenant, device));
  Refusal refusal;
  EXPECT_TRUE(other.reserve(device, kCapUnits, refusal))
      << "a child that owns nothing kept its dead parent's memory";
  close(hold[1]);
}

TEST(LedgerConcurrencyTest, ExecReleasesTheSlot) {
  ScratchTenant tenant;
  int to_parent[2], hold[2];
  ASSERT_EQ(pipe(to_parent), 0);
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = spawn([&] {
    auto ledger = std::make_unique<Ledger>();
    int device = -1;
    Refusal refusal;
    if (!join(*ledger, tenant, device) || !ledger->reserve(device, kCapUnits, refusal)) return 2;
    dup2(hold[0], 0);
    dup2(to_parent[1], 1);
    close(hold[1]);
    execl("/bin/sh", "sh", "-c", "echo; read line", nullptr);
    return 3;
  });
  char byte = 0;
  ASSERT_EQ(read(to_parent[0], &byte, 1), 1);
  Ledger other;
  int device = -1;
  ASSERT_TRUE(join(other, tenant, device));
  Refusal refusal;
  EXPECT_TRUE(other.reserve(device, kCapUnits, refusal));
  close(hold[1]);
  close(hold[0]);
  exit_status(child);
}

// Stopped while it holds memory, not while it holds the file's lock: for that the others wait five
// seconds and are then refused.
TEST(LedgerConcurrencyTest, StoppedProcessDoesNotStopTheOthers) {
  ScratchTenant tenant;
  Shared* shared = map_shared();
  const pid_t child = spawn([&] {
    auto ledger = std::make_unique<Ledger>();
    int device = -1;
    Refusal refusal;
    if (!join(*ledger, tenant, device)) return 2;
    if (!ledger->reserve(device, kCapUnits / 2, refusal)) return 3;
    raise(SIGSTOP);
    return ledger->reserve(device, kCapUnits / 2, refusal) ? 0 : 4;
  });
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  auto other = std::make_unique<Ledger>();
  int device = -1;
  ASSERT_TRUE(join(*other, tenant, device));
  storm(*other, device, *shared, 6, 20000);
  EXPECT_EQ(other->check_invariants(), "");
  EXPECT_LE(shared->highest, kCapUnits / 2) << "what the stopped process holds was given away";
  EXPECT_GT(shared->granted, 1000u);
  kill(child, SIGCONT);
  EXPECT_EQ(exit_status(child), 0);
}

}  // namespace
}  // namespace fracgpu
