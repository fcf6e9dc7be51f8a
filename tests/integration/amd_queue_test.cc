// Queues take device memory that nobody asks for by size: the area into which the device saves a
// queue's waves, and scratch memory. There must be room for it before a queue is made.
#include "tests/integration/amd_rig.h"

namespace fracgpu::test {
namespace {

constexpr int kOutOfResources = 0x1008;

class AmdQueue : public AmdRig {
 protected:
  explicit AmdQueue(const std::string& profile = "mi210") : AmdRig(profile) {}

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

TEST_P(AmdQueueOf, NeedsRoomForItsSaveArea) {
  expect_refused_without_room("queue 0", 256, 252);
}
INSTANTIATE_TEST_SUITE_P(Products, AmdQueueOf,
                         testing::Values("mi300x", "mi300x-cpx-nps4", "mi210", "mi250x", "gfx1100"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

// 9.3 MiB by libhsakmt's formula, and 20 MiB by what the kernel publishes.
TEST_F(AmdQueuePublished, NeedsRoomForWhatTheKernelPublishes) {
  expect_refused_without_room("queue 0", 64, 48);
}

// 16 KiB for each of 16 * 32 * 64 threads are 512 MiB.
TEST_F(AmdQueueOnHost, NeedsRoomForItsScratchMemory) {
  expect_refused_without_room("queue 16KiB", 600, 128);
}

// As much as fits is made: four areas of 20 MiB in 96, and nothing is thought to be in use of those
// that are gone.
TEST_F(AmdQueuePublished, AsManyAreMadeAsFit) {
  auto program =
      start("96MiB", "init queue 0 queue 0 queue 0 queue 0 queue 0 wait freeall fill 8MiB wait");
  const auto lines = program->read_until_ready();
  ASSERT_EQ(lines.size(), 6u) << program->finish().err;
  for (int i = 1; i <= 4; ++i) EXPECT_EQ(field(lines[i], "rc="), 0) << i;
  EXPECT_EQ(field(lines[5], "rc="), kOutOfResources);
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

}  // namespace
}  // namespace fracgpu::test
