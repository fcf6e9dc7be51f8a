// Which parts of a ledger's file have memory, and what happens where no more can be had: one line
// that says so, and never a SIGBUS, which would end the program.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <vector>

#include "shim/ledger/ledger.h"
#include "tests/unit/private_mounts.h"
#include "tests/unit/scratch_tenant.h"

namespace fracgpu {
namespace {

constexpr char kKey[] = "GPU-test";
constexpr uint64_t kCap = 1 << 20;
constexpr uint32_t kSlotsPerPage = 64;

int64_t kib_of(const ScratchTenant& tenant) {
  struct stat status = {};
  EXPECT_EQ(stat(tenant.path().c_str(), &status), 0);
  return status.st_blocks / 2;
}

bool joins(Ledger& ledger, const ScratchTenant& tenant, Message& error) {
  return ledger.join(tenant.name(), ProcessIdentity::of_self(), nullptr, error);
}

// Processes that stay, each in the next slot.
struct Crowd {
  // False with `error` set where one cannot join.
  bool grow(const ScratchTenant& tenant, uint32_t count) {
    while (members.size() < count) {
      members.push_back(std::make_unique<Ledger>());
      if (!joins(*members.back(), tenant, error)) {
        members.pop_back();
        return false;
      }
    }
    return true;
  }
  std::vector<std::unique_ptr<Ledger>> members;
  Message error;
};

TEST(LedgerMemoryTest, GrowsWithDevicesAndProcesses) {
  ScratchTenant tenant;
  Crowd crowd;
  ASSERT_TRUE(crowd.grow(tenant, 1));
  EXPECT_EQ(kib_of(tenant), 84);
  Ledger& first = *crowd.members.front();
  ASSERT_EQ(first.device(kKey, kCap, kCap, crowd.error), 0);
  EXPECT_EQ(kib_of(tenant), 88);
  ASSERT_EQ(first.device("GPU-other", kCap, kCap, crowd.error), 1);
  EXPECT_EQ(kib_of(tenant), 92);
  ASSERT_TRUE(crowd.grow(tenant, kSlotsPerPage));
  EXPECT_EQ(kib_of(tenant), 92) << "64 processes fit the first page of each part";
  ASSERT_TRUE(crowd.grow(tenant, kSlotsPerPage + 1));
  EXPECT_EQ(kib_of(tenant), 112) << "three pages of slots, and one of cells for each device";
  ASSERT_EQ(first.device("GPU-third", kCap, kCap, crowd.error), 2);
  EXPECT_EQ(kib_of(tenant), 120) << "two pages of cells";
  EXPECT_EQ(first.check_invariants(), "");
}

TEST(LedgerMemoryTest, NoLookGivesMemory) {
  ScratchTenant tenant;
  Crowd crowd;
  ASSERT_TRUE(crowd.grow(tenant, 3));
  Ledger& first = *crowd.members.front();
  ASSERT_EQ(first.device(kKey, kCap, kCap, crowd.error), 0);
  Refusal refusal;
  ASSERT_TRUE(first.reserve(0, 100, refusal));
  EXPECT_FALSE(first.reserve(0, kCap, refusal));
  first.record(0, "cuMemAlloc", refusal);
  first.note_handle(7 << 11);
  crowd.members.pop_back();
  EXPECT_TRUE(first.reap_dead());
  Ledger observer;
  ASSERT_EQ(observer.observe(tenant.name(), crowd.error), LedgerFile::Result::ok);
  EXPECT_EQ(observer.held(0), 100u);
  EXPECT_EQ(observer.held(0, true), 100u);
  EXPECT_EQ(observer.find_device("GPU-none"), -1);
  EXPECT_EQ(observer.free_device_rows(), 127);
  EXPECT_EQ(observer.imported_by_others(0), 0u);
  EXPECT_GE(observer.find_process({.pid = static_cast<uint32_t>(getpid()),
                                   .pid_namespace = ProcessIdentity::of_self().pid_namespace}),
            0);
  EXPECT_EQ(first.check_invariants(), "");
  EXPECT_EQ(first.check_own_cells(), "");
  EXPECT_EQ(kib_of(tenant), 88);
}

// What a device or a process had is nothing to those who get its place.
TEST(LedgerMemoryTest, IsZeroedForTheNext) {
  ScratchTenant tenant;
  for (const char* key : {"GPU-a", "GPU-b"}) {
    Crowd crowd;
    ASSERT_TRUE(crowd.grow(tenant, kSlotsPerPage + 1));
    for (const auto& member : crowd.members) {
      Refusal refusal;
      ASSERT_EQ(member->device(key, kCap, kCap, crowd.error), 0);
      EXPECT_EQ(member->held_by_self(0), 0u);
      EXPECT_TRUE(member->reserve(0, 2, refusal));
      member->add_exported(0, 1);
    }
    EXPECT_EQ(crowd.members.front()->held(0), 2u * (kSlotsPerPage + 1));
  }
}

int full(const ScratchTenant& tenant) {
  const int filler = open("/dev/shm/filler", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (filler < 0) return 10;
  const std::string page(4096, 'x');
  while (write(filler, page.data(), page.size()) > 0) {
  }
  Crowd crowd;
  if (crowd.grow(tenant, 1)) return 11;
  const auto free_pages = [&](int count) {
    const off_t size = lseek(filler, 0, SEEK_END);
    return ftruncate(filler, size - count * 4096) == 0;
  };
  const auto said = [&] { return crowd.error.view().find("no space left") != std::string::npos; };
  if (!said() || !free_pages(21) || !crowd.grow(tenant, kSlotsPerPage)) return 12;
  Ledger& first = *crowd.members.front();
  if (first.device(kKey, kCap, kCap, crowd.error) != -1 || !said()) return 13;
  if (!free_pages(1) || first.device(kKey, kCap, kCap, crowd.error) != 0) return 14;
  // The slots' pages are there, and none for their cells.
  if (!free_pages(3) || crowd.grow(tenant, kSlotsPerPage + 1) || !said()) return 15;
  Refusal refusal;
  if (!first.reserve(0, 1000, refusal) || first.held(0) != 1000) return 16;
  if (first.reserve(0, kCap, refusal)) return 17;
  first.record(0, "cuMemAlloc", refusal);
  if (!first.check_invariants().empty()) return 18;
  if (!free_pages(1) || !crowd.grow(tenant, kSlotsPerPage + 1)) return 19;
  return crowd.members.back()->device(kKey, kCap, kCap, crowd.error) == 0 ? 0 : 20;
}

TEST(LedgerMemoryTest, FullDevShm) {
  ScratchTenant tenant;
  with_private_mounts([&] {
    if (mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m") != 0) return 77;
    return full(tenant);
  });
}

TEST(LedgerMemoryTest, NothingIsAddedToADamagedOne) {
  ScratchTenant tenant;
  Crowd crowd;
  ASSERT_TRUE(crowd.grow(tenant, 2));
  Ledger& first = *crowd.members.front();
  ASSERT_EQ(first.device(kKey, kCap, kCap, crowd.error), 0);
  auto& backed = const_cast<layout::Ledger*>(first.map())->slots_backed;
  for (const uint64_t word : {backed.load() ^ 8, uint64_t{3} << 30, uint64_t{0}}) {
    const uint64_t before = backed.exchange(word);
    Crowd others;
    EXPECT_FALSE(others.grow(tenant, 1)) << word;
    EXPECT_NE(others.error.view().find("is damaged"), std::string::npos) << others.error.view();
    Refusal refusal;
    EXPECT_TRUE(first.reserve(0, 1, refusal)) << word;
    backed = before;
  }
}

}  // namespace
}  // namespace fracgpu
