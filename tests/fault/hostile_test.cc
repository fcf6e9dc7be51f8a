// Bits that flip in a live ledger while processes reserve and free: a process is refused with one
// line, or goes on; none crashes and none waits without end, and when they are gone the books are
// made anew. (What a flip does to the running processes' sum cannot be promised: a cell is the only
// record of what its process holds.)
#include <fcntl.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/fault/shared.h"

namespace fracgpu::fault {
namespace {

constexpr uint64_t kCap = 100000;

struct Counters {
  std::atomic<uint64_t> operations{0};
  std::atomic<uint64_t> refusals{0};
  std::atomic<uint64_t> faults{0};
  std::atomic<uint64_t> unexplained{0};
  std::atomic<bool> stop{false};
};

int reserve_and_free(const ScratchTenant& tenant, Counters& counters, unsigned seed) {
  Member member;
  if (!member.join(tenant, kCap)) return member.error.empty() ? 2 : 0;
  std::mt19937 random(seed);
  while (!counters.stop) {
    const uint64_t units = random() % 9000 + 1;
    if (member.reserve(units)) {
      member.release(units);
    } else {
      ++counters.refusals;
      counters.faults += !member.refusal.fault.empty();
      counters.unexplained += member.refusal.fault.empty() && member.refusal.asked != units;
    }
    ++counters.operations;
  }
  return 0;
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
  const int fd = open(tenant.path().c_str(), O_RDWR | O_CLOEXEC);
  auto* words = static_cast<std::atomic<uint64_t>*>(
      mmap(nullptr, sizeof(layout::Ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  close(fd);
  ASSERT_NE(words, MAP_FAILED);
  // Half of the flips where it hurts: the bitmap, the device's row, the first cells.
  std::mt19937 random(3);
  const size_t all = sizeof(layout::Ledger) / 8;
  const size_t live = offsetof(layout::Ledger, live) / 8;
  const size_t device = offsetof(layout::Ledger, devices) / 8;
  const size_t cells = offsetof(layout::Ledger, cells) / 8;
  for (int flip = 0; flip < 500; ++flip) {
    const size_t places[] = {random() % all,         random() % all,
                             random() % all,         live + random() % 16,
                             device + random() % 16, cells + random() % 16 * 2};
    words[places[random() % 6]] ^= uint64_t{1} << (random() % 64);
    const uint64_t next = counters->operations + 5;
    while (counters->operations < next) sched_yield();
  }
  counters->stop = true;
  for (const pid_t child : children) EXPECT_EQ(exit_status(child), 0);
  munmap(words, sizeof(layout::Ledger));
  EXPECT_EQ(counters->unexplained, 0u);
  std::printf("%llu operations, %llu refused, %llu of them because the ledger failed\n",
              static_cast<unsigned long long>(counters->operations),
              static_cast<unsigned long long>(counters->refusals),
              static_cast<unsigned long long>(counters->faults));

  Member next;
  ASSERT_TRUE(next.join(tenant, kCap)) << next.error.view();
  EXPECT_TRUE(next.reserve(kCap));
  EXPECT_FALSE(next.reserve(1));
}

}  // namespace
}  // namespace fracgpu::fault
