// The ledger's protocol with several members in one process, where every step is in a known order,
// so that each answer can be compared with a model to the unit.
#include "shim/ledger/ledger.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "shim/base/byte_lock.h"
#include "shim/base/descriptor.h"
#include "tests/unit/child.h"
#include "tests/unit/scratch_tenant.h"

namespace fracgpu {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr char kKey[] = "GPU-test";

uint64_t units(uint64_t bytes) {
  return layout::units_for(bytes);
}

// A process of the tenant. `before` has joined in the same test and stands for another process.
std::unique_ptr<Ledger> member(const ScratchTenant& tenant, uint64_t cap_bytes, int* device,
                               Ledger::ReleaseProbe let_go = nullptr,
                               const Ledger* before = nullptr) {
  auto ledger = std::make_unique<Ledger>();
  Message error;
  ProcessIdentity self = ProcessIdentity::of_self();
  if (before != nullptr && self.host_pid != 0) ++self.host_pid;
  EXPECT_TRUE(ledger->join(tenant.name(), self, let_go, error)) << error.view();
  *device = ledger->device(kKey, cap_bytes, 80ull << 30, error);
  EXPECT_GE(*device, 0) << error.view();
  return ledger;
}

TEST(LedgerTest, ReservesUpToTheCapAndNotAUnitMore) {
  ScratchTenant tenant;
  int device = -1;
  auto ledger = member(tenant, 100 * kMiB, &device);
  Refusal refusal;
  ASSERT_TRUE(ledger->reserve(device, units(60 * kMiB), refusal));
  EXPECT_FALSE(ledger->reserve(device, units(40 * kMiB) + 1, refusal));
  EXPECT_EQ(refusal.held, units(60 * kMiB));
  EXPECT_EQ(refusal.cap, units(100 * kMiB));
  EXPECT_EQ(refusal.asked, units(40 * kMiB) + 1);
  EXPECT_EQ(refusal.largest_pid, static_cast<uint32_t>(getpid()));
  EXPECT_TRUE(refusal.fault.empty());
  ASSERT_TRUE(ledger->reserve(device, units(40 * kMiB), refusal));
  EXPECT_FALSE(ledger->reserve(device, 1, refusal));
  ledger->release(device, 1);
  EXPECT_TRUE(ledger->reserve(device, 1, refusal));
  EXPECT_EQ(ledger->map()->devices[device].peak.load(), units(100 * kMiB));
}

TEST(LedgerTest, AsksForTheCountWhenLessThanHalfIsLeft) {
  ScratchTenant tenant;
  int device = -1;
  auto ledger = member(tenant, 1000 * kMiB, &device);
  const auto said = [&] { return ledger->map()->cells[device][0].time_and_allocations.load(); };
  Refusal refusal;
  EXPECT_EQ(said(), 0u) << "nothing was said yet";
  ASSERT_TRUE(ledger->reserve(device, units(500 * kMiB), refusal));
  ledger->set_overhead(device, units(100 * kMiB));
  ledger->set_allocations(device, 7);
  EXPECT_EQ(said() & UINT32_MAX, 7u);
  // Not by time(), whose clock lags behind the one that the ledger reads.
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  EXPECT_LE(static_cast<uint64_t>(now.tv_sec) - (said() >> 32), 60u);
  EXPECT_FALSE(ledger->release(device, units(200 * kMiB))) << "half of what calls had taken";
  EXPECT_TRUE(ledger->release(device, 1));
  ledger->set_allocations(device, 5);
  EXPECT_FALSE(ledger->release(device, units(90 * kMiB)));
  EXPECT_TRUE(ledger->release(device, units(110 * kMiB) - 1)) << "all but what no call asked for";
  ledger->set_allocations(device, 0);
  ASSERT_TRUE(ledger->reserve(device, 1, refusal));
  EXPECT_FALSE(ledger->release(device, 1)) << "pairs say nothing";
  ledger->set_allocations(device, UINT64_MAX);
  EXPECT_EQ(said() & UINT32_MAX, UINT32_MAX);
}

TEST(LedgerTest, AbsurdSizesAreRefused) {
  ScratchTenant tenant;
  int device = -1;
  auto ledger = member(tenant, 100 * kMiB, &device);
  Refusal refusal;
  for (const uint64_t absurd : {uint64_t{1} << 32, uint64_t{1} << 54, UINT64_MAX}) {
    EXPECT_FALSE(ledger->reserve(device, absurd, refusal)) << absurd;
  }
  EXPECT_EQ(ledger->held(device), 0u);
}

// Whatever the members did before, a request is granted exactly when the cap has room for it.
TEST(LedgerTest, AnswersAreExact) {
  ScratchTenant tenant;
  int device = -1;
  const uint64_t cap = 512 * kMiB;
  std::vector<std::unique_ptr<Ledger>> members;
  for (int i = 0; i < 5; ++i) members.push_back(member(tenant, cap, &device));
  std::vector<std::vector<uint64_t>> held(members.size());
  std::mt19937_64 random(42);
  uint64_t total = 0;
  int refused = 0;
  for (int step = 0; step < 100000; ++step) {
    const size_t who = random() % members.size();
    if (random() % 5 < 3) {
      const uint64_t n = random() % 4 == 0 ? random() % units(cap) + 1 : random() % 20000 + 1;
      Refusal refusal;
      const bool granted = members[who]->reserve(device, n, refusal);
      ASSERT_EQ(granted, total + n <= units(cap)) << "step " << step << " total " << total;
      if (granted) {
        total += n;
        held[who].push_back(n);
      } else {
        ++refused;
        ASSERT_EQ(refusal.held, total);
      }
    } else if (!held[who].empty()) {
      const size_t which = random() % held[who].size();
      members[who]->release(device, held[who][which]);
      total -= held[who][which];
      held[who].erase(held[who].begin() + static_cast<long>(which));
    }
    ASSERT_EQ(members[0]->held(device), total);
    if (step % 1000 == 0) {
      ASSERT_EQ(members[who]->check_invariants(), "") << "step " << step;
      ASSERT_EQ(members[who]->check_own_cells(), "") << "step " << step;
    }
  }
  EXPECT_EQ(members[0]->check_invariants(), "");
  EXPECT_GT(refused, 1000) << "the test must reach the cap";
}

TEST(LedgerTest, OverdraftBlocksEverybodyUntilItDrains) {
  ScratchTenant tenant;
  int device = -1;
  auto a = member(tenant, 100 * kMiB, &device);
  auto b = member(tenant, 100 * kMiB, &device);
  Refusal refusal;
  ASSERT_TRUE(a->reserve(device, units(90 * kMiB), refusal));
  b->charge_taken(device, units(30 * kMiB));  // found out afterwards: 20 MiB too much
  EXPECT_EQ(a->held(device), units(120 * kMiB));
  EXPECT_FALSE(a->reserve(device, 1, refusal));
  EXPECT_FALSE(b->reserve(device, 1, refusal));
  a->release(device, units(20 * kMiB));
  EXPECT_FALSE(b->reserve(device, 1, refusal));
  a->release(device, units(10 * kMiB));
  EXPECT_TRUE(b->reserve(device, units(10 * kMiB), refusal));
  EXPECT_FALSE(a->reserve(device, 1, refusal));
  EXPECT_EQ(a->check_invariants(), "");
  EXPECT_EQ(b->check_own_cells(), "");
}

TEST(LedgerTest, LoweredCapTakesUnspentLeaseBackAtOnce) {
  ScratchTenant tenant;
  int device = -1;
  auto a = member(tenant, 1024 * kMiB, &device);
  auto b = member(tenant, 1024 * kMiB, &device);
  Refusal refusal;
  Message error;
  ASSERT_TRUE(a->reserve(device, units(64 * kMiB), refusal));
  ASSERT_TRUE(b->set_cap(device, 64 * kMiB, error));
  EXPECT_FALSE(a->reserve(device, 1, refusal)) << "spare lease of the old cap was still spent";
  ASSERT_TRUE(b->set_cap(device, 32 * kMiB, error));
  EXPECT_FALSE(b->reserve(device, 1, refusal));
  a->release(device, units(48 * kMiB));
  EXPECT_TRUE(b->reserve(device, units(16 * kMiB), refusal));
  EXPECT_FALSE(a->reserve(device, 1, refusal));
  ASSERT_TRUE(a->set_cap(device, 128 * kMiB, error));
  EXPECT_TRUE(a->reserve(device, units(96 * kMiB), refusal));
}

TEST(LedgerTest, CapOfRunningTenantStaysUntilItsLastProcessIsGone) {
  ScratchTenant tenant;
  int device = -1;
  auto a = member(tenant, 100 * kMiB, &device);
  auto b = member(tenant, 200 * kMiB, &device);
  EXPECT_EQ(b->cap(device), units(100 * kMiB)) << "a later start must not raise the cap";
  a.reset();
  b.reset();
  auto c = member(tenant, 200 * kMiB, &device);
  EXPECT_EQ(c->cap(device), units(200 * kMiB)) << "a cap must not stick to a tenant that ended";
}

// A process that had joined alone must not undo what others and operators did to caps since then.
TEST(LedgerTest, LoweredCapStaysForTheProcessThatJoinedAlone) {
  ScratchTenant tenant;
  int first = -1;
  auto a = member(tenant, 256 * kMiB, &first);
  auto b = member(tenant, 256 * kMiB, &first);
  Message error;
  const auto cap_for = [&](Ledger& ledger, const char* key, uint64_t mib) {
    const int device = ledger.device(key, mib * kMiB, 80ull << 30, error);
    EXPECT_GE(device, 0) << error.view();
    return ledger.cap(device);
  };
  const int second = b->device("GPU-second", 256 * kMiB, 80ull << 30, error);
  ASSERT_TRUE(b->set_cap(second, 128 * kMiB, error));
  EXPECT_EQ(cap_for(*a, "GPU-second", 256), units(128 * kMiB)) << "its first use of the device";
  ASSERT_TRUE(b->set_cap(first, 64 * kMiB, error));
  EXPECT_EQ(cap_for(*a, kKey, 256), units(64 * kMiB)) << "used again, as after hsa_shut_down";
  EXPECT_EQ(cap_for(*b, "GPU-third", 100), units(100 * kMiB));
  EXPECT_EQ(cap_for(*a, "GPU-third", 256), units(100 * kMiB)) << "another process's own limit";
}

// As in a process that was restored from a checkpoint: all of its memory is there, and no lock.
void drop_slot_lock(const ScratchTenant& tenant) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char mode[5] = "";
    if (line.find(tenant.path()) == line.npos ||
        sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, mode) != 3 || end - begin != 4096) {
      continue;
    }
    // In its place there is a mapping of another description.
    const int file = open(tenant.path().c_str(), O_RDONLY);
    void* const place = reinterpret_cast<void*>(begin);
    ASSERT_EQ(mmap(place, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0), place);
    close(file);
  }
}

// One with a cap of 100 MiB that holds 10 MiB.
std::unique_ptr<Ledger> restored_member(const ScratchTenant& tenant, int* device) {
  Refusal refusal;
  auto restored = member(tenant, 100 * kMiB, device);
  EXPECT_TRUE(restored->reserve(*device, units(10 * kMiB), refusal));
  drop_slot_lock(tenant);
  return restored;
}

TEST(LedgerTest, SlotOfAProcessThatWasRestoredIsItsOwnAgain) {
  ScratchTenant tenant;
  int device = -1;
  Refusal refusal;
  auto a = restored_member(tenant, &device);
  EXPECT_FALSE(a->any_alive());
  EXPECT_TRUE(a->reserve(device, units(60 * kMiB), refusal)) << refusal.fault.view();
  EXPECT_TRUE(a->any_alive());
  auto b = member(tenant, 100 * kMiB, &device);
  EXPECT_EQ(b->held(device), units(70 * kMiB));
  EXPECT_FALSE(b->reserve(device, units(40 * kMiB), refusal));
}

TEST(LedgerTest, SlotOfAProcessThatWasRestoredTooLateIsAnothers) {
  ScratchTenant tenant;
  int device = -1;
  Refusal refusal;
  auto a = restored_member(tenant, &device);
  auto b = std::make_unique<Ledger>();
  Message error;
  ProcessIdentity other = ProcessIdentity::of_self();
  ++other.pid;
  ASSERT_TRUE(b->join(tenant.name(), other, nullptr, error)) << error.view();
  EXPECT_EQ(b->slot(), a->slot());
  EXPECT_FALSE(a->reserve(device, units(60 * kMiB), refusal));
  EXPECT_NE(refusal.fault.view().find("restored from a checkpoint"), std::string_view::npos)
      << refusal.fault.view();
}

// The dead hold memory that the driver has not released, so that their rows stay.
TEST(LedgerTest, CapsOfTheDeadAreReplacedOnce) {
  ScratchTenant tenant;
  static std::atomic<bool> released;
  released = false;
  const auto probe = [](const DeadProcess&, const char*) {
    return released ? Ledger::DriverRelease::released : Ledger::DriverRelease::held;
  };
  int device = -1;
  Message error;
  Refusal refusal;
  {
    auto dead = member(tenant, 100 * kMiB, &device, probe);
    ASSERT_TRUE(dead->reserve(device, 1, refusal));
  }
  auto a = std::make_unique<Ledger>();
  ASSERT_TRUE(a->join(tenant.name(), ProcessIdentity::of_self(), probe, error)) << error.view();
  EXPECT_EQ(a->cap(device), units(100 * kMiB));
  auto b = member(tenant, 200 * kMiB, &device, probe, a.get());
  EXPECT_EQ(b->cap(device), units(200 * kMiB)) << "nobody alive had used the device";
  EXPECT_EQ(a->device(kKey, 300 * kMiB, 80ull << 30, error), device);
  EXPECT_EQ(a->cap(device), units(200 * kMiB)) << "set by a living process";
  ASSERT_TRUE(b->set_cap(device, 50 * kMiB, error));
  auto c = member(tenant, 200 * kMiB, &device, probe, a.get());
  EXPECT_EQ(c->cap(device), units(50 * kMiB));
}

// The process has as many descriptors open as it may.
TEST(LedgerTest, GrantsWhatFitsWithoutADescriptor) {
  ScratchTenant tenant;
  EXPECT_EQ(status_of_child([&] {
              int device = -1;
              auto a = member(tenant, 1024 * kMiB, &device);
              auto b = member(tenant, 1024 * kMiB, &device);
              Refusal refusal;
              if (!b->reserve(device, units(100 * kMiB), refusal)) return 1;
              const rlimit few = {3, 1024};
              if (setrlimit(RLIMIT_NOFILE, &few) != 0 || !no_descriptor_is_free()) return 2;
              if (!a->reserve(device, units(900 * kMiB), refusal)) return 3;
              if (!refusal.fault.empty()) return 4;
              if (a->reserve(device, units(100 * kMiB), refusal)) return 5;
              if (!refusal.fault.empty() || refusal.held != units(1000 * kMiB)) return 6;
              if (!a->reserve(device, units(24 * kMiB), refusal)) return 7;
              const rlimit many = {1024, 1024};
              if (setrlimit(RLIMIT_NOFILE, &many) != 0) return 8;
              a->release(device, units(100 * kMiB));
              if (!a->reserve(device, units(100 * kMiB), refusal)) return 9;
              return a->check_invariants().empty() ? 0 : 10;
            }),
            0);
}

TEST(LedgerTest, DeviceTableFull) {
  ScratchTenant tenant;
  int device = -1;
  auto ledger = member(tenant, kMiB, &device);
  Message error;
  for (uint32_t i = 1; i < layout::kMaxDevices; ++i) {
    EXPECT_EQ(ledger->device(("GPU-" + std::to_string(i)).c_str(), kMiB, kMiB, error),
              static_cast<int>(i));
  }
  EXPECT_EQ(ledger->device("GPU-one-too-many", kMiB, kMiB, error), -1);
  EXPECT_NE(error.view().find("no row left"), std::string_view::npos);
  EXPECT_EQ(ledger->device("GPU-3", kMiB, kMiB, error), 3) << "known devices are still found";
}

TEST(LedgerTest, SlotTableFull) {
  ScratchTenant tenant;
  int device = -1;
  std::vector<std::unique_ptr<Ledger>> members;
  for (uint32_t i = 0; i < layout::kMaxSlots; ++i) {
    members.push_back(member(tenant, 100 * kMiB, &device));
  }
  Ledger one_too_many;
  Message error;
  EXPECT_FALSE(one_too_many.join(tenant.name(), ProcessIdentity::of_self(), nullptr, error));
  EXPECT_NE(error.view().find("no free slot"), std::string_view::npos) << error.view();
  members[500].reset();  // a process ends: its place can be had at once
  EXPECT_TRUE(one_too_many.join(tenant.name(), ProcessIdentity::of_self(), nullptr, error))
      << error.view();
}

TEST(LedgerTest, DyingProcessIsWaitedForUntilTheDriverLetsGo) {
  ScratchTenant tenant;
  int device = -1;
  static int answers_left;
  answers_left = 3;
  const auto let_go = [](const DeadProcess&, const char* key) {
    EXPECT_STREQ(key, kKey);
    return --answers_left < 0 ? Ledger::DriverRelease::released : Ledger::DriverRelease::held;
  };
  auto survivor = member(tenant, 100 * kMiB, &device, let_go);
  auto dead = member(tenant, 100 * kMiB, &device, nullptr, survivor.get());
  Refusal refusal;
  ASSERT_TRUE(dead->reserve(device, units(80 * kMiB), refusal));
  dead.reset();  // drops its mapping, as the kernel does at death, while its cell stays
  EXPECT_TRUE(survivor->reserve(device, units(50 * kMiB), refusal)) << refusal.fault.view();
  EXPECT_LT(answers_left, 0) << "the bytes were given out before the driver let go of them";
}

TEST(LedgerTest, MemoryTheDriverKeepsIsNotGivenOut) {
  ScratchTenant tenant;
  int device = -1;
  auto survivor = member(tenant, 100 * kMiB, &device, [](const DeadProcess&, const char*) {
    return Ledger::DriverRelease::held;
  });
  auto dead = member(tenant, 100 * kMiB, &device, nullptr, survivor.get());
  Refusal refusal;
  ASSERT_TRUE(dead->reserve(device, units(80 * kMiB), refusal));
  dead.reset();
  EXPECT_FALSE(survivor->reserve(device, units(50 * kMiB), refusal));
  EXPECT_TRUE(survivor->reserve(device, units(20 * kMiB), refusal));
}

// The dead keep their slots while their memory is held, and nobody to the cap that they had.
TEST(LedgerTest, WhoJoinsTheDeadAloneSetsTheCap) {
  ScratchTenant tenant;
  int device = -1;
  const auto held = [](const DeadProcess&, const char*) { return Ledger::DriverRelease::awaited; };
  const Ledger another;
  auto dead = member(tenant, 100 * kMiB, &device, held, &another);
  Refusal refusal;
  ASSERT_TRUE(dead->reserve(device, units(80 * kMiB), refusal));
  dead.reset();
  auto first = member(tenant, 90 * kMiB, &device, held);
  EXPECT_EQ(first->cap(device), units(90 * kMiB));
  EXPECT_EQ(first->held(device), units(80 * kMiB));
  EXPECT_FALSE(first->reserve(device, units(11 * kMiB), refusal));
  EXPECT_TRUE(first->reserve(device, units(10 * kMiB), refusal));
  auto second = member(tenant, 200 * kMiB, &device, held);
  EXPECT_EQ(second->cap(device), units(90 * kMiB));
}

// Where the driver never tells, the dead are gone; where it has told once, it could not be asked.
TEST(LedgerTest, WhetherTheDriverLetGoMayBeUnknown) {
  for (const bool told : {false, true}) {
    ScratchTenant tenant;
    int device = -1;
    static Ledger::DriverRelease answer;
    answer = told ? Ledger::DriverRelease::held : Ledger::DriverRelease::unknown;
    auto survivor =
        member(tenant, 100 * kMiB, &device, [](const DeadProcess&, const char*) { return answer; });
    auto dead = member(tenant, 100 * kMiB, &device, nullptr, survivor.get());
    Refusal refusal;
    ASSERT_TRUE(dead->reserve(device, units(80 * kMiB), refusal));
    dead.reset();
    EXPECT_EQ(survivor->reserve(device, units(50 * kMiB), refusal), !told);
    answer = Ledger::DriverRelease::unknown;
    EXPECT_EQ(survivor->reserve(device, units(30 * kMiB), refusal), !told);
    answer = Ledger::DriverRelease::pid_reused;
    EXPECT_EQ(survivor->reserve(device, units(90 * kMiB), refusal), told);
  }
}

TEST(LedgerTest, TheDeadHaveNoAllocations) {
  ScratchTenant tenant;
  int device = -1;
  auto alive = member(tenant, 100 * kMiB, &device);
  const layout::Ledger& map = *alive->map();
  const uint32_t slot = 1;
  Refusal refusal;
  alive->add_imported(device, units(kMiB));
  for (const bool exports : {false, true}) {
    auto dead = member(tenant, 100 * kMiB, &device);
    ASSERT_TRUE(dead->reserve(device, units(20 * kMiB), refusal));
    if (exports) dead->add_exported(device, units(kMiB));
    dead->set_allocations(device, 9);
    ASSERT_EQ(map.cells[device][slot].time_and_allocations.load() & UINT32_MAX, 9u);
    dead.reset();
    EXPECT_TRUE(alive->reap_dead());
    EXPECT_EQ(map.slots[slot].orphaned.load(), exports ? 1u : 0u);
    EXPECT_EQ(map.cells[device][slot].time_and_allocations.load(), 0u);
  }
}

TEST(LedgerTest, OneOfThoseThatJoinAtOnceLooksForTheDead) {
  ScratchTenant tenant;
  int device = -1;
  auto alive = member(tenant, 100 * kMiB, &device);
  Refusal refusal;
  const auto die_with = [&](uint64_t bytes) {
    auto dead = member(tenant, 100 * kMiB, &device);
    ASSERT_TRUE(dead->reserve(device, units(bytes), refusal));
  };
  die_with(20 * kMiB);
  const int fd = open(alive->path(), O_RDWR | O_CLOEXEC);
  struct flock looking = byte_lock(F_WRLCK, layout::kReapLock);
  ASSERT_EQ(fcntl(fd, F_OFD_SETLK, &looking), 0);
  auto beside = member(tenant, 100 * kMiB, &device);
  EXPECT_EQ(alive->held(device), units(20 * kMiB));
  // Who needs what the dead have looks in any case: the other one may be stopped.
  EXPECT_TRUE(beside->reserve(device, units(90 * kMiB), refusal));
  close(fd);
  die_with(5 * kMiB);
  member(tenant, 100 * kMiB, &device);
  EXPECT_EQ(alive->held(device), units(90 * kMiB));
}

// What the driver has not let go of yet: all of the process with this host PID.
uint32_t lingering = 0;
Ledger::DriverRelease unless_lingering(const DeadProcess& dead, const char*) {
  return dead.host_pid == lingering ? Ledger::DriverRelease::held : Ledger::DriverRelease::released;
}

class LedgerOrphanTest : public testing::Test {
 protected:
  // A process with a host PID of its own.
  std::unique_ptr<Ledger> join(uint32_t host_pid) {
    auto ledger = std::make_unique<Ledger>();
    ProcessIdentity self = ProcessIdentity::of_self();
    self.host_pid = host_pid;
    self.pid = host_pid;
    Message error;
    EXPECT_TRUE(ledger->join(tenant_.name(), self, unless_lingering, error)) << error.view();
    device_ = ledger->device(kKey, 100 * kMiB, 80ull << 30, error);
    return ledger;
  }
  // What a process that has exported all of it leaves behind.
  void die_with(uint64_t exported) { hold_exports(*join(4001), 20 * kMiB, exported); }
  void hold_exports(Ledger& exporter, uint64_t held, uint64_t exported) {
    Refusal refusal;
    ASSERT_TRUE(exporter.reserve(device_, units(held), refusal));
    exporter.add_exported(device_, units(exported));
  }
  void hold_exports(Ledger& exporter, uint64_t bytes) { hold_exports(exporter, bytes, bytes); }
  uint64_t left(Ledger& ledger) {
    ledger.reap_dead();
    return ledger.held(device_);
  }
  ~LedgerOrphanTest() override { lingering = 0; }

  ScratchTenant tenant_;
  int device_ = -1;
};

TEST_F(LedgerOrphanTest, WhatIsBeingImportedIsKept) {
  auto importer = join(4000);
  importer->begin_import();
  die_with(20 * kMiB);
  EXPECT_EQ(left(*importer), units(20 * kMiB)) << "it may be all of it";
  importer->add_imported(device_, units(5 * kMiB));
  EXPECT_EQ(left(*importer), units(20 * kMiB)) << "and more may come";
  importer->end_import();
  EXPECT_EQ(left(*importer), units(5 * kMiB));
  importer->drop_imported(device_, units(5 * kMiB));
  EXPECT_EQ(left(*importer), 0u);
}

TEST_F(LedgerOrphanTest, ADyingImporterStillHoldsWhatItHas) {
  auto other = join(4000);
  auto importer = join(4002);
  importer->add_imported(device_, units(20 * kMiB));
  die_with(20 * kMiB);
  EXPECT_EQ(left(*other), units(20 * kMiB));
  lingering = 4002;
  importer.reset();
  EXPECT_EQ(left(*other), units(20 * kMiB)) << "the driver has not let go of what it has yet";
  lingering = 0;
  EXPECT_EQ(left(*other), 0u);
}

// Its exporter lives on, and does nothing.
TEST_F(LedgerOrphanTest, WhatIsFreedIsKeptWhileItIsImported) {
  auto exporter = join(4001);
  auto importer = join(4000);
  Refusal refusal;
  hold_exports(*exporter, 90 * kMiB, 60 * kMiB);
  importer->add_imported(device_, units(20 * kMiB));
  EXPECT_TRUE(exporter->free_exported(device_, units(60 * kMiB)));
  EXPECT_EQ(exporter->held_by_self(device_), units(30 * kMiB));
  EXPECT_EQ(importer->held(device_), units(50 * kMiB));
  EXPECT_EQ(importer->orphaned_imports(device_), units(20 * kMiB));
  EXPECT_EQ(importer->held(device_, true), units(50 * kMiB));
  // Its lease does not reach for it either.
  EXPECT_FALSE(exporter->reserve(device_, units(51 * kMiB), refusal));
  hold_exports(*exporter, 10 * kMiB);
  importer->drop_imported(device_, units(15 * kMiB));
  EXPECT_TRUE(exporter->free_exported(device_, units(10 * kMiB))) << "none of it is imported";
  EXPECT_EQ(left(*importer), units(35 * kMiB));
  exporter.reset();
  EXPECT_EQ(left(*importer), units(5 * kMiB));
  importer->drop_imported(device_, units(5 * kMiB));
  EXPECT_EQ(left(*importer), 0u);
  EXPECT_EQ(importer->check_invariants(), "");
}

// Imports by the exporter must not lower the charge for memory that other processes hold.
TEST_F(LedgerOrphanTest, WhatIsFreedIsKeptWhileItsExporterImports) {
  auto exporter = join(4001);
  auto importer = join(4000);
  hold_exports(*exporter, 20 * kMiB);
  importer->add_imported(device_, units(20 * kMiB));
  ASSERT_TRUE(exporter->free_exported(device_, units(20 * kMiB)));
  std::atomic<bool> done{false};
  std::thread imports([&] {
    while (!done) {
      exporter->begin_import();
      exporter->add_imported(device_, units(2 * kMiB));
      exporter->end_import();
      exporter->drop_imported(device_, units(2 * kMiB));
    }
  });
  uint64_t least = units(20 * kMiB);
  for (int i = 0; i < 3000; ++i) least = std::min(least, left(*importer));
  done = true;
  imports.join();
  EXPECT_EQ(least, units(20 * kMiB));
}

TEST_F(LedgerOrphanTest, AllTogetherAreNoMoreThanIsImported) {
  auto one = join(4001);
  auto other = join(4002);
  auto importer = join(4000);
  importer->add_imported(device_, units(20 * kMiB));
  for (Ledger* exporter : {one.get(), other.get()}) {
    hold_exports(*exporter, 20 * kMiB);
    ASSERT_TRUE(exporter->free_exported(device_, units(20 * kMiB)));
    EXPECT_EQ(importer->held(device_), units(20 * kMiB));
    EXPECT_EQ(left(*importer), units(20 * kMiB));
  }
  importer->drop_imported(device_, units(15 * kMiB));
  EXPECT_EQ(left(*importer), units(5 * kMiB));
  EXPECT_EQ(importer->held(device_, true), units(5 * kMiB)) << "nobody waits for it";
  // The charge does not say whose orphans it is for: either exporter's further ones are added.
  for (Ledger* exporter : {one.get(), other.get()}) {
    hold_exports(*exporter, 10 * kMiB);
    importer->add_imported(device_, units(10 * kMiB));
    ASSERT_TRUE(exporter->free_exported(device_, units(10 * kMiB)));
  }
  EXPECT_EQ(left(*importer), units(25 * kMiB));
  importer->drop_imported(device_, units(25 * kMiB));
  EXPECT_EQ(left(*importer), 0u);
  EXPECT_EQ(importer->check_invariants(), "");
}

// Two processes import from each other. A process's imports are not its own orphans.
TEST_F(LedgerOrphanTest, AProcessDoesNotImportItsOwn) {
  auto one = join(4001);
  auto other = join(4002);
  hold_exports(*one, 20 * kMiB);
  one->add_imported(device_, units(30 * kMiB));
  other->add_imported(device_, units(20 * kMiB));
  ASSERT_TRUE(one->free_exported(device_, units(20 * kMiB)));
  EXPECT_EQ(left(*other), units(20 * kMiB));
  other->drop_imported(device_, units(12 * kMiB));
  EXPECT_EQ(left(*other), units(8 * kMiB));
  other->drop_imported(device_, units(8 * kMiB));
  EXPECT_EQ(left(*other), 0u);
}

// Of two freed exports only the one that is still imported stays charged, whatever else its
// importer has, and whether their exporter lives.
TEST_F(LedgerOrphanTest, AListedExportIsKeptWhileItIsImported) {
  for (const bool dies : {false, true}) {
    auto exporter = join(4001);
    auto importer = join(4000);
    Refusal refusal;
    ASSERT_TRUE(exporter->reserve(device_, units(90 * kMiB), refusal));
    const uint32_t large = exporter->list_export(device_, units(50 * kMiB));
    const uint32_t small = exporter->list_export(device_, units(10 * kMiB));
    const uint32_t living = exporter->list_export(device_, units(30 * kMiB));
    ASSERT_TRUE(large != 0 && small != 0 && living != 0);
    EXPECT_EQ(exporter->check_own_cells(), "");
    importer->add_import(living);
    importer->add_import(small);
    EXPECT_EQ(layout::imported_by(*importer->map(), device_, importer->slot()), units(40 * kMiB));
    if (dies) {
      exporter.reset();
      EXPECT_EQ(importer->orphaned_imports(device_), units(40 * kMiB)) << "nobody has looked yet";
      EXPECT_EQ(left(*importer), units(40 * kMiB));
      importer->drop_import(living);
    } else {
      EXPECT_EQ(importer->orphaned_imports(device_), 0u);
      exporter->note_freed(device_, living);
      EXPECT_EQ(importer->orphaned_imports(device_), units(30 * kMiB)) << "a descriptor held it";
      ASSERT_TRUE(exporter->free_exported(device_, units(50 * kMiB), large));
      EXPECT_EQ(importer->held(device_), units(40 * kMiB)) << "at once";
      ASSERT_TRUE(exporter->free_exported(device_, units(10 * kMiB), small));
      EXPECT_EQ(exporter->held_by_self(device_), units(30 * kMiB));
      EXPECT_EQ(left(*importer), units(40 * kMiB));
      EXPECT_EQ(importer->held(device_, true), units(40 * kMiB));
      // Its lease does not reach for the orphans.
      EXPECT_FALSE(exporter->reserve(device_, units(61 * kMiB), refusal));
      importer->drop_import(living);
      exporter->release(device_, units(30 * kMiB));
      exporter->drop_exported(device_, units(30 * kMiB), living);
    }
    EXPECT_EQ(left(*importer), units(10 * kMiB));
    EXPECT_EQ(importer->orphaned_imports(device_), units(10 * kMiB));
    EXPECT_EQ(importer->check_invariants(), "");
    importer->drop_import(small);
    EXPECT_EQ(importer->held(device_, true), 0u) << "nobody waits for it";
    EXPECT_EQ(left(*importer), 0u);
    EXPECT_EQ(importer->check_invariants(), "");
  }
}

TEST_F(LedgerOrphanTest, AListedExportOfItsDeadExporterIsChargedOnce) {
  auto exporter = join(4001);
  auto importer = join(4000);
  Refusal refusal;
  ASSERT_TRUE(exporter->reserve(device_, units(60 * kMiB), refusal));
  const uint32_t freed = exporter->list_export(device_, units(20 * kMiB));
  const uint32_t kept = exporter->list_export(device_, units(40 * kMiB));
  importer->add_import(freed);
  importer->add_import(kept);
  ASSERT_TRUE(exporter->free_exported(device_, units(20 * kMiB), freed));
  EXPECT_EQ(importer->held(device_), units(60 * kMiB));
  lingering = 4001;
  exporter.reset();
  EXPECT_EQ(left(*importer), units(60 * kMiB)) << "the driver has not let go of it yet";
  lingering = 0;
  EXPECT_EQ(left(*importer), units(60 * kMiB));
  importer->drop_import(freed);
  EXPECT_EQ(left(*importer), units(40 * kMiB));
  importer.reset();
  EXPECT_EQ(left(*join(4003)), 0u);
}

TEST_F(LedgerOrphanTest, AListedExportIsKeptWhileACallMayImportIt) {
  auto exporter = join(4001);
  auto importer = join(4000);
  Refusal refusal;
  ASSERT_TRUE(exporter->reserve(device_, units(20 * kMiB), refusal));
  const uint32_t number = exporter->list_export(device_, units(20 * kMiB));
  importer->begin_import();
  ASSERT_TRUE(exporter->free_exported(device_, units(20 * kMiB), number));
  EXPECT_EQ(left(*importer), units(20 * kMiB)) << "the call may have imported it";
  importer->add_import(number);
  importer->end_import();
  EXPECT_EQ(left(*importer), units(20 * kMiB));
  importer->drop_import(number);
  EXPECT_EQ(left(*importer), 0u);
}

// An import whose exporter was not found may be of any export.
TEST_F(LedgerOrphanTest, AListedExportIsKeptBesideAnUnknownImport) {
  for (const bool dies : {false, true}) {
    auto exporter = join(4001);
    auto importer = join(4000);
    Refusal refusal;
    ASSERT_TRUE(exporter->reserve(device_, units(30 * kMiB), refusal));
    const uint32_t number = exporter->list_export(device_, units(30 * kMiB));
    importer->add_imported(device_, units(10 * kMiB));
    importer->add_imported(device_, units(20 * kMiB), true);
    if (dies) {
      exporter.reset();
    } else {
      ASSERT_TRUE(exporter->free_exported(device_, units(30 * kMiB), number));
      EXPECT_EQ(exporter->held_by_self(device_), 0u);
      EXPECT_EQ(importer->held(device_), units(20 * kMiB)) << "at once";
    }
    const uint64_t kept = left(*importer);
    EXPECT_GE(kept, units(20 * kMiB));
    EXPECT_LE(kept, units(30 * kMiB));
    importer->drop_imported(device_, units(20 * kMiB), true);
    importer->drop_imported(device_, units(10 * kMiB));
    EXPECT_EQ(left(*importer), 0u);
    EXPECT_EQ(importer->check_invariants(), "");
  }
}

// An exporter's own imports, and calls that may import, keep nothing of its own.
TEST_F(LedgerOrphanTest, AnExporterDoesNotKeepItsOwnListedExport) {
  auto exporter = join(4001);
  Refusal refusal;
  ASSERT_TRUE(exporter->reserve(device_, units(30 * kMiB), refusal));
  const uint32_t number = exporter->list_export(device_, units(30 * kMiB));
  exporter->begin_import();
  exporter->add_imported(device_, units(30 * kMiB), true);
  ASSERT_TRUE(exporter->free_exported(device_, units(30 * kMiB), number));
  EXPECT_EQ(exporter->held(device_), 0u);
}

TEST_F(LedgerOrphanTest, APlaceWhoseBitIsSetIsNotUsedAgain) {
  auto exporter = join(4001);
  auto importer = join(4000);
  const uint32_t number = exporter->list_export(device_, 1);
  importer->add_import(number);
  exporter->drop_exported(device_, 1, number);
  EXPECT_NE(exporter->list_export(device_, 1), number);
  importer->drop_import(number);
  EXPECT_EQ(exporter->list_export(device_, 1), number);
}

// Neither a damaged bit nor a damaged row hides an import or blocks the device for ever.
TEST_F(LedgerOrphanTest, DamagedExports) {
  auto exporter = join(4001);
  auto importer = join(4000);
  layout::Ledger& map = const_cast<layout::Ledger&>(*importer->map());
  Refusal refusal;
  ASSERT_TRUE(exporter->reserve(device_, units(10 * kMiB), refusal));
  const uint32_t first = exporter->list_export(device_, units(4 * kMiB));
  const uint32_t second = exporter->list_export(device_, units(6 * kMiB));
  importer->add_import(second);
  map.slots[importer->slot()].imports[0] ^= 2;
  importer->add_import(first);
  importer->drop_import(first);
  ASSERT_TRUE(exporter->free_exported(device_, units(6 * kMiB), second));
  EXPECT_EQ(left(*importer), units(10 * kMiB)) << "a damaged word stands for all";
  map.exports[first - 1].exported_and_orphaned ^= 2;
  exporter.reset();
  EXPECT_GE(left(*importer), units(10 * kMiB));
  EXPECT_NE(importer->check_invariants(), "");
  importer.reset();
  auto later = join(4002);
  EXPECT_EQ(left(*later), 0u);
  EXPECT_EQ(later->check_invariants(), "");
}

TEST_F(LedgerOrphanTest, AHandleThatIsGivenOutAgainEvictsNone) {
  auto exporter = join(4001);
  const uint64_t first = uint64_t{1} << 11;
  const uint64_t second = first + (uint64_t{1} << 40);
  ASSERT_EQ(layout::handle_set(first), layout::handle_set(second));
  exporter->note_handle(first);
  for (uint32_t i = 0; i < 2 * layout::kHandlesPerSet; ++i) exporter->note_handle(second);
  EXPECT_TRUE(layout::find_handle(exporter->map()->handles, first));
  EXPECT_TRUE(layout::find_handle(exporter->map()->handles, second));
}

// Thousands of exports that end between an export and its import must not hide the export's owner.
TEST_F(LedgerOrphanTest, AHandleOfAnExportThatEndedIsEvictedFirst) {
  auto exporter = join(4001);
  Refusal refusal;
  ASSERT_TRUE(exporter->reserve(device_, 2 * units(2 * kMiB), refusal));
  const auto handle = [](uint64_t i) { return (uint64_t{1} << 11) + (i << 40); };
  const uint32_t number = exporter->list_export(device_, units(2 * kMiB));
  exporter->note_handle(handle(0), number);
  for (uint32_t i = 1; i <= 2 * layout::kHandlesPerSet; ++i) {
    const uint32_t short_lived = exporter->list_export(device_, units(2 * kMiB));
    exporter->note_handle(handle(i), short_lived);
    EXPECT_EQ(exporter->find_export(handle(i)), short_lived);
    exporter->drop_exported(device_, units(2 * kMiB), short_lived);
    EXPECT_EQ(exporter->find_export(handle(0)), number) << "after " << i;
  }
  for (uint32_t i = 1; i <= layout::kHandlesPerSet; ++i) exporter->note_handle(handle(i), number);
  EXPECT_EQ(exporter->find_export(handle(0)), 0u) << "of eight that live, the oldest one goes";
}

// A handle that is known stands for the memory that it was made of, never for later memory.
TEST_F(LedgerOrphanTest, APlaceIsUsedAgain) {
  auto exporter = join(4001);
  Refusal refusal;
  ASSERT_TRUE(exporter->reserve(device_, units(20 * kMiB), refusal));
  const uint64_t hash = layout::hash_of_handle("handle", 6);
  const uint32_t first = exporter->list_export(device_, units(10 * kMiB));
  exporter->note_handle(hash, first);
  EXPECT_EQ(exporter->find_export(hash), first);
  EXPECT_EQ(exporter->find_export(first, exporter->mark_of_self()), first);
  EXPECT_EQ(exporter->find_export(first, exporter->mark_of_self() ^ 1), 0u);
  EXPECT_EQ(exporter->units_of_export(first), units(10 * kMiB));
  ASSERT_TRUE(exporter->free_exported(device_, units(10 * kMiB), first));
  EXPECT_EQ(exporter->find_export(first, exporter->mark_of_self()), 0u);
  EXPECT_EQ(exporter->list_export(device_, units(10 * kMiB)), first);
  EXPECT_EQ(exporter->find_export(hash), 0u);
}

TEST_F(LedgerOrphanTest, MoreExportsThanPlacesAreSums) {
  auto exporter = join(4001);
  auto importer = join(4000);
  Refusal refusal;
  ASSERT_TRUE(exporter->reserve(device_, layout::kMaxExports, refusal));
  for (uint32_t number = 1; number <= layout::kMaxExports; ++number) {
    ASSERT_EQ(exporter->list_export(device_, 1), number);
    importer->add_import(number);
  }
  EXPECT_EQ(exporter->list_export(device_, 1), 0u);
  exporter.reset();
  EXPECT_EQ(left(*importer), layout::kMaxExports);
  EXPECT_EQ(importer->check_invariants(), "");
  for (uint32_t number = 1; number <= layout::kMaxExports; number += 2) {
    importer->drop_import(number);
  }
  EXPECT_EQ(left(*importer), layout::kMaxExports / 2);
  EXPECT_NE(join(4002)->list_export(device_, 1), 0u);
}

TEST_F(LedgerOrphanTest, WhatNobodyHasImportedIsGivenBackAtOnce) {
  auto exporter = join(4001);
  hold_exports(*exporter, 90 * kMiB, 60 * kMiB);
  EXPECT_TRUE(exporter->free_exported(device_, units(60 * kMiB)));
  EXPECT_EQ(exporter->held(device_), units(30 * kMiB));
  EXPECT_EQ(exporter->orphaned_imports(device_), 0u);
  EXPECT_TRUE(exporter->has_one_slot());
}

TEST(LedgerTest, ObserverLeavesTheDeadOut) {
  ScratchTenant tenant;
  int device = -1;
  Message error;
  Ledger early;
  EXPECT_EQ(early.observe(tenant.name(), error), LedgerFile::Result::absent);
  auto alive = member(tenant, 100 * kMiB, &device);
  auto dead = member(tenant, 100 * kMiB, &device);
  Refusal refusal;
  ASSERT_TRUE(alive->reserve(device, units(10 * kMiB), refusal));
  ASSERT_TRUE(dead->reserve(device, units(20 * kMiB), refusal));
  Ledger observer;
  ASSERT_EQ(observer.observe(tenant.name(), error), LedgerFile::Result::ok) << error.view();
  EXPECT_EQ(observer.held(observer.find_device(kKey), true), units(30 * kMiB));
  dead.reset();
  EXPECT_EQ(observer.held(observer.find_device(kKey), true), units(10 * kMiB));
  EXPECT_TRUE(observer.any_alive());
  alive.reset();
  EXPECT_FALSE(observer.any_alive());
}

// A sum visits no slots behind those that are used, so these follow who comes and goes.
TEST(LedgerTest, SumsReachAsFarAsSlotsAreUsed) {
  constexpr int kMost = 300;  // more than there are lines of cells
  ScratchTenant tenant;
  std::vector<std::unique_ptr<Ledger>> members;
  int device = -1;
  Refusal refusal;
  for (uint64_t i = 1; i <= kMost; ++i) {
    members.push_back(member(tenant, 1000 * kMiB, &device));
    ASSERT_TRUE(members.back()->reserve(device, i, refusal));
    ASSERT_EQ(members.front()->held(device), i * (i + 1) / 2);
  }
  const layout::Ledger& map = *members.front()->map();
  EXPECT_EQ(layout::slots_used(map), kMost);
  auto& used = const_cast<layout::Ledger&>(map).slots_used;
  for (int bit = 0; bit < 64; bit += 7) {
    used ^= uint64_t{1} << bit;
    EXPECT_EQ(members.front()->held(device), kMost * (kMost + 1) / 2) << "damaged";
    used ^= uint64_t{1} << bit;
  }
  members.erase(members.begin() + 7, members.end() - 1);
  EXPECT_TRUE(members.front()->reap_dead());
  EXPECT_EQ(layout::slots_used(map), kMost) << "the last one lives";
  EXPECT_EQ(members.front()->held(device), 28u + kMost);
  members.pop_back();
  EXPECT_TRUE(members.front()->reap_dead());
  EXPECT_EQ(layout::slots_used(map), 7u);
  EXPECT_EQ(members.front()->held(device), 28u);
  EXPECT_EQ(members.front()->check_invariants(), "");
}

TEST(LedgerTest, EachBrokenInvariantIsFound) {
  using layout::pack;
  const std::map<std::string, std::function<void(layout::Ledger&)>> corruptions = {
      {"the leases of a device fit its cap",
       [](layout::Ledger& map) {
         map.cells[0][0].held_and_lease = pack(units(20 * kMiB), units(101 * kMiB));
       }},
      {"a device's cap and the cells of claimed slots are codewords",
       [](layout::Ledger& map) { map.devices[0].cap ^= 1; }},
      {"every device's key has its check", [](layout::Ledger& map) { map.devices[0].key[0] ^= 1; }},
      {"devices are appended without a gap",
       [](layout::Ledger& map) { map.devices[2].cap = layout::encode(1); }},
      {"no device is there twice",
       [](layout::Ledger& map) {
         memcpy(map.devices[1].key, map.devices[0].key, sizeof map.devices[0].key);
         map.devices[1].key_check = map.devices[0].key_check;
         map.devices[1].cap = layout::encode(1);
       }},
      {"what a claimed slot shares is a codeword",
       [](layout::Ledger& map) { map.cells[0][0].exported_and_imported = 1; }},
      {"a slot that nobody has claimed holds nothing",
       [](layout::Ledger& map) { map.cells[0][1].held_and_lease = pack(1, 0); }},
      {"a slot behind those used holds nothing", [](layout::Ledger& map) { map.slots_used = 0; }},
      {"the number of slots that have memory is a codeword",
       [](layout::Ledger& map) { map.slots_backed ^= 4; }},
      {"every claimed slot has memory", [](layout::Ledger& map) { map.live[1] = 1; }},
  };
  for (const auto& [broken, corrupt] : corruptions) {
    ScratchTenant tenant;
    int device = -1;
    auto ledger = member(tenant, 100 * kMiB, &device);
    Refusal refusal;
    ASSERT_TRUE(ledger->reserve(device, units(20 * kMiB), refusal));
    ASSERT_EQ(ledger->check_invariants(), "");
    corrupt(const_cast<layout::Ledger&>(*ledger->map()));
    EXPECT_EQ(ledger->check_invariants(), broken);
  }
}

TEST(LedgerTest, EachBrokenInvariantOfAnOwnCellIsFound) {
  using layout::pack;
  const std::map<std::string, std::function<void(layout::Ledger&)>> corruptions = {
      {"the overhead is part of what is held",
       [](layout::Ledger& map) { map.cells[0][0].overhead = units(21 * kMiB); }},
      {"what is exported is part of what is held",
       [](layout::Ledger& map) {
         map.cells[0][0].exported_and_imported = pack(units(21 * kMiB), 0);
       }},
      {"no less than is held was held at the peak",
       [](layout::Ledger& map) { map.cells[0][0].peak = 1; }},
  };
  for (const auto& [broken, corrupt] : corruptions) {
    ScratchTenant tenant;
    int device = -1;
    auto ledger = member(tenant, 100 * kMiB, &device);
    Refusal refusal;
    ASSERT_TRUE(ledger->reserve(device, units(20 * kMiB), refusal));
    ASSERT_EQ(ledger->check_own_cells(), "");
    corrupt(const_cast<layout::Ledger&>(*ledger->map()));
    EXPECT_EQ(ledger->check_own_cells(), broken);
  }
}

}  // namespace
}  // namespace fracgpu
