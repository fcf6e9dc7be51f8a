// What the runtime asks the kernel driver for on its own account: the area into which the device
// saves a queue's waves, scratch memory, a queue of its own. It is charged before it is taken, and
// a cap is to the runtime like a device of that size.
#include "tests/integration/amd_rig.h"

namespace fracgpu::test {
namespace {

constexpr int kOutOfResources = 0x1008;

class AmdQueue : public AmdRig {
 protected:
  explicit AmdQueue(const std::string& profile = "mi210") : AmdRig(profile) {}

  // With so much used under the cap a queue is made without a save area on the device; with nothing
  // used, the next one has it there.
  void expect_save_area_on_host_without_room(uint64_t cap_mib, uint64_t used_mib) {
    auto program = start(std::to_string(cap_mib) + "MiB",
                         "init hsa 0 " + std::to_string(used_mib) +
                             "MiB queue 0 wait free 0 wait queue 0 wait freeall wait");
    const auto lines = program->read_until_ready();
    ASSERT_EQ(lines.size(), 3u) << program->finish().err;
    EXPECT_EQ(field(lines[2], "rc="), 0) << "a device of that size makes it";
    expect_books_agree(program->pid(), "area on the host");
    program->go_on();
    program->read_until_ready();
    const uint64_t before = node_->used_by_pid(0, program->pid());
    program->go_on();
    EXPECT_EQ(field(program->read_until_ready().back(), "rc="), 0);
    EXPECT_GT(node_->used_by_pid(0, program->pid()), before + 8 * kMiB) << "area on the device";
    expect_books_agree(program->pid(), "area on the device");
    program->go_on();
    program->read_until_ready();
    expect_books_agree(program->pid(), "all destroyed");
    program->finish();
    EXPECT_LE(node_->tenant_high_water(0, tenant_), cap_mib * kMiB)
        << "taken before it was asked for";
  }

  // With so much used under the cap a queue of this kind is refused, and nothing is taken for it
  // meanwhile; with nothing used it is made.
  void expect_refused_without_room(const std::string& queue, uint64_t cap_mib, uint64_t used_mib) {
    auto program = start(std::to_string(cap_mib) + "MiB", "init hsa 0 " + std::to_string(used_mib) +
                                                              "MiB " + queue + " wait free 0 " +
                                                              queue + " wait freeall wait");
    const auto lines = program->read_until_ready();
    ASSERT_EQ(lines.size(), 3u) << program->finish().err;
    EXPECT_EQ(field(lines[1], "rc="), 0);
    EXPECT_EQ(field(lines[2], "rc="), kOutOfResources) << "HIP tries a smaller one after this";
    expect_books_agree(program->pid(), "refused");
    program->go_on();
    EXPECT_EQ(field(program->read_until_ready().back(), "rc="), 0);
    expect_books_agree(program->pid(), "made");
    program->go_on();
    program->read_until_ready();
    expect_books_agree(program->pid(), "all destroyed");
    const Outcome outcome = program->finish();
    EXPECT_LE(node_->tenant_high_water(0, tenant_), cap_mib * kMiB)
        << "taken before it was asked for";
    EXPECT_NE(outcome.err.find("hsa_queue_create refused on " + key()), std::string::npos)
        << outcome.err;
  }
};
class AmdQueuePublished : public AmdQueue {
 protected:
  AmdQueuePublished() : AmdQueue("tiny-cwsr") {}
};
class AmdQueueOnHost : public AmdQueue {
 protected:
  AmdQueueOnHost() : AmdQueue("tiny-amd") {}
};
class AmdQueueOf : public AmdQueue, public testing::WithParamInterface<const char*> {
 protected:
  AmdQueueOf() : AmdQueue(GetParam()) {}
};

// As the kernel driver does where a device is full, and as soon as there is room another one has
// its area on the device.
TEST_P(AmdQueueOf, LeavesItsSaveAreaInHostMemoryWithoutRoom) {
  expect_save_area_on_host_without_room(256, 252);
}
INSTANTIATE_TEST_SUITE_P(Products, AmdQueueOf,
                         testing::Values("mi300x", "mi300x-cpx-nps4", "mi210", "mi250x", "gfx1100"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

// 20 MiB by what the kernel publishes.
TEST_F(AmdQueuePublished, LeavesItsSaveAreaInHostMemoryWithoutRoom) {
  expect_save_area_on_host_without_room(64, 48);
}

// 16 KiB for each of 16 * 32 * 64 threads are 512 MiB.
TEST_F(AmdQueueOnHost, NeedsRoomForItsScratchMemory) {
  expect_refused_without_room("queue 16KiB", 600, 128);
}

// Four areas of 20 MiB are on the device in 96 MiB, and nothing is thought to be in use of those
// that are gone.
TEST_F(AmdQueuePublished, HaveTheirSaveAreasOnTheDeviceWhileTheyFit) {
  auto program =
      start("96MiB", "init queue 0 queue 0 queue 0 queue 0 queue 0 wait freeall fill 8MiB wait");
  const auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 6u) << program->finish().err;
  for (int i = 1; i <= 5; ++i) EXPECT_EQ(field(lines[i], "rc="), 0) << i;
  EXPECT_GT(node_->used_by_pid(0, program->pid()), 80 * kMiB);
  expect_books_agree(program->pid(), "full of queues");
  program->go_on();
  EXPECT_GE(field(program->read_until_ready().back(), "count="), 11) << "something leaked";
  program->finish();
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 96 * kMiB);
}

// A queue on a kernel without shared virtual memory takes 4 KiB.
TEST_F(AmdQueueOnHost, NeedsHardlyAnything) {
  auto program = start("32MiB", "init hsa 0 30MiB queue 0 wait");
  EXPECT_EQ(field(program->read_until_ready().back(), "rc="), 0) << program->finish().err;
}

// HIP halves the queue and tries again until 64 packets are too many, and then says so.
TEST_F(AmdQueue, HipsStreamsAreRefusedInOrder) {
  auto program = start("256MiB", "init hsa 0 100MiB stream stream stream stream wait freeall wait");
  const auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 6u) << program->finish().err;
  EXPECT_EQ(field(lines[2], "rc="), 0) << lines[2];
  expect_books_agree(program->pid(), "streams");
  program->finish();
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 256 * kMiB);
}

// The runtime makes a queue of its own before the program's first, and reserves 140 MiB of scratch
// memory where eight times as much is available.
class AmdOwnQueue : public AmdQueue {
 protected:
  static constexpr uint64_t kReserved = 140 * kMiB;
  const Environment own_queue_ = {{"FRACGPU_SIM_HSA_OWN_QUEUE", "1"}};
};

TEST_F(AmdOwnQueue, IsChargedWithItsScratchMemory) {
  auto program = start("4GiB", "init wait queue 0 wait freeall wait", own_queue_);
  program->read_until_ready();
  const uint64_t before = node_->used_by_pid(0, program->pid());
  program->go_on();
  EXPECT_EQ(field(program->read_until_ready().back(), "rc="), 0) << program->finish().err;
  EXPECT_GT(node_->used_by_pid(0, program->pid()), before + kReserved + 100 * kMiB);
  expect_books_agree(program->pid(), "made");
  program->go_on();
  program->read_until_ready();
  EXPECT_GT(node_->used_by_pid(0, program->pid()), before + kReserved) << "it is kept";
  expect_books_agree(program->pid(), "its own is kept");
}

TEST_F(AmdOwnQueue, SeesTheCapAsTheDevicesSize) {
  auto program = start("1GiB", "init wait queue 0 wait", own_queue_);
  program->read_until_ready();
  const uint64_t before = node_->used_by_pid(0, program->pid());
  program->go_on();
  EXPECT_EQ(field(program->read_until_ready().back(), "rc="), 0);
  EXPECT_LT(node_->used_by_pid(0, program->pid()), before + kReserved) << "1 GiB is not enough";
  expect_books_agree(program->pid(), "made");
}

// Two processes that fill the cap together, one of which has had no queue before.
TEST_F(AmdOwnQueue, NeverPassesTheCapBesideAnotherProcess) {
  auto first = start("1GiB", "init hsa 0 64MiB wait queue 0 wait", own_queue_);
  first->read_until_ready();
  auto second = start("1GiB", "init fill 8MiB wait", own_queue_);
  second->read_until_ready();
  first->go_on();
  first->read_until_ready();
  expect_books_agree(first->pid(), "queue at a full cap");
  first->finish();
  second->finish();
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 1024 * kMiB);
}

// A request that is refused makes the runtime give back what it keeps unused.
TEST_F(AmdQueue, KeepsNothingUnusedBeforeARefusal) {
  auto program =
      start("64MiB", "init hsa 0 2MiB hsa 0 2MiB hsa 0 2MiB free 0 free 1 wait fill 2MiB wait");
  program->read_until_ready();
  program->go_on();
  program->read_until_ready();
  expect_books_agree(program->pid(), "full");
  EXPECT_GT(node_->used_by_pid(0, program->pid()), 62 * kMiB);
  program->finish();
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 64 * kMiB);
}

}  // namespace
}  // namespace fracgpu::test
