// Bits that flip in a live ledger while processes reserve and free. One flipped bit: whatever it
// hits, the cap holds; a process is refused with one line, or goes on. Many: none crashes and none
// waits without end. When all are gone the ledger is made anew.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/fault/shared.h"

namespace fracgpu::fault {
namespace {

constexpr uint64_t kCap = 100000;

struct Counters {
  std::atomic<uint64_t> used{0};  // units, by the processes' own count
  std::atomic<uint64_t> exceeded{0};
  std::atomic<uint64_t> operations{0};
  std::atomic<uint64_t> refusals{0};
  std::atomic<uint64_t> faults{0};
  std::atomic<uint64_t> unexplained{0};
  std::atomic<bool> stop{false};
};

// Holds up to three pieces at a time, so that there is something to forget.
int reserve_and_free(const ScratchTenant& tenant, Counters& counters, unsigned seed) {
  Member member;
  if (!member.join(tenant, kCap)) return member.error.empty() ? 2 : 0;
  std::mt19937 random(seed);
  uint64_t mine[3] = {};
  while (!counters.stop) {
    uint64_t& piece = mine[random() % 3];
    const uint64_t units = random() % 20000 + 1;
    if (piece > 0) {
      counters.used -= piece;
      member.release(piece);
      piece = 0;
    } else if (member.reserve(units)) {
      piece = units;
      counters.exceeded += (counters.used += units) > kCap;
    } else {
      ++counters.refusals;
      member.ledger->record(member.device, "cuMemAlloc", member.refusal);
      counters.faults += !member.refusal.fault.empty();
      counters.unexplained += member.refusal.fault.empty() && member.refusal.asked != units;
    }
    ++counters.operations;
  }
  for (const uint64_t piece : mine) {
    counters.used -= piece;
    member.release(piece);
  }
  return 0;
}

// The words of a ledger that is in use, and which of them a flip would hurt.
class Victim {
 public:
  explicit Victim(const ScratchTenant& tenant) {
    const int fd = open(tenant.path().c_str(), O_RDWR | O_CLOEXEC);
    void* at = mmap(nullptr, sizeof(layout::Ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED) words_ = static_cast<std::atomic<uint64_t>*>(at);
  }
  ~Victim() { munmap(words_, sizeof(layout::Ledger)); }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  // Mostly where it hurts: the bits of the first slots in both bitmaps, what they hold, the
  // device's row. None in the header, after which the file is no ledger to those who open it.
  void flip(std::mt19937& random) {
    const size_t live = offsetof(layout::Ledger, live) / 8;
    // With the cells of the first device's first slots; behind those nearly all is empty.
    const size_t all = (offsetof(layout::Ledger, cells) + 4096) / 8 - live;
    const size_t device = offsetof(layout::Ledger, devices) / 8;
    const size_t cells = offsetof(layout::Ledger, cells) / 8;
    const size_t refusals = offsetof(layout::Ledger, refusals) / 8;
    const size_t slot = random() % 4;
    switch (random() % 6) {
      case 0:
        return flip(live + random() % all, random() % 64);
      case 1:
        return flip(live + random() % 2 * 16, slot);
      case 2:
        return flip(device + offsetof(layout::Device, cap) / 8, random() % 20);
      case 3:
        return flip(device + random() % 8, random() % 64);
      case 4:
        return flip(refusals + random() % (device - refusals), random() % 64);
      default:
        return flip(cells + slot * sizeof(layout::Cell) / 8, 32 + random() % 20);
    }
  }

  // Those that have their check say what the processes said, and one flip spoils one at most.
  void expect_whole_records(uint64_t refusals) const {
    const auto& ledger = *reinterpret_cast<const layout::Ledger*>(words_);
    layout::RefusalRecord record;
    int whole = 0;
    for (const auto& place : ledger.refused) {
      if (!layout::read_refusal(place, record)) continue;
      EXPECT_STREQ(record.api, "cuMemAlloc");
      ++whole;
    }
    EXPECT_TRUE(refusals < 2 || whole > 0);
  }

 private:
  void flip(size_t word, size_t bit) { words_[word] ^= uint64_t{1} << bit; }

  std::atomic<uint64_t>* words_ = nullptr;
};

void expect_made_anew(const ScratchTenant& tenant) {
  Member next;
  ASSERT_TRUE(next.join(tenant, kCap)) << next.error.view();
  EXPECT_TRUE(next.reserve(kCap));
  EXPECT_FALSE(next.reserve(1));
}

void wait_for_operations(const Counters& counters, uint64_t more) {
  const uint64_t next = counters.operations + more;
  while (counters.operations < next) sched_yield();
}

TEST(Hostile, OneFlippedBitNeverBreaksTheCap) {
  const int rounds = getenv("FRACGPU_CAMPAIGN") != nullptr ? 3000 : 150;
  std::mt19937 random(11);
  uint64_t operations = 0, faults = 0;
  for (int round = 0; round < rounds; ++round) {
    ScratchTenant tenant;
    Mapped<Counters> counters;
    std::vector<pid_t> children;
    {
      Member first;
      ASSERT_TRUE(first.join(tenant, kCap));
      for (unsigned i = 0; i < 3; ++i) {
        children.push_back(spawn([&, i] { return reserve_and_free(tenant, *counters, i); }));
      }
      wait_for_operations(*counters, 100);
    }
    Victim victim(tenant);
    victim.flip(random);
    // One that comes only now must not be given what another one holds.
    children.push_back(spawn([&] { return reserve_and_free(tenant, *counters, 9); }));
    wait_for_operations(*counters, 300);
    counters->stop = true;
    for (const pid_t child : children) ASSERT_EQ(exit_status(child), 0);
    ASSERT_EQ(counters->exceeded, 0u) << "round " << round;
    ASSERT_EQ(counters->unexplained, 0u) << "round " << round;
    victim.expect_whole_records(counters->refusals);
    expect_made_anew(tenant);
    operations += counters->operations;
    faults += counters->faults;
  }
  std::printf("%d flips, %llu operations, %llu refused because the ledger is damaged\n", rounds,
              static_cast<unsigned long long>(operations), static_cast<unsigned long long>(faults));
  EXPECT_GT(faults, 0u);
}

TEST(Hostile, BitsFlipUnderRunningProcesses) {
  ScratchTenant tenant;
  Mapped<Counters> counters;
  {
    Member first;
    ASSERT_TRUE(first.join(tenant, kCap));
  }
  std::vector<pid_t> children;
  for (unsigned i = 0; i < 4; ++i) {
    children.push_back(spawn([&, i] { return reserve_and_free(tenant, *counters, i); }));
  }
  wait_for_operations(*counters, 1);
  std::mt19937 random(3);
  Victim victim(tenant);
  for (int flip = 0; flip < 500; ++flip) {
    victim.flip(random);
    wait_for_operations(*counters, 5);
  }
  counters->stop = true;
  for (const pid_t child : children) EXPECT_EQ(exit_status(child), 0);
  EXPECT_EQ(counters->unexplained, 0u);
  victim.expect_whole_records(counters->refusals);
  std::printf("%llu operations, %llu refused, %llu of them because the ledger failed\n",
              static_cast<unsigned long long>(counters->operations),
              static_cast<unsigned long long>(counters->refusals),
              static_cast<unsigned long long>(counters->faults));
  expect_made_anew(tenant);
}

}  // namespace
}  // namespace fracgpu::fault
