// Several processes on the devices of the simulated HSA runtime, one of them with the simulated
// CUDA driver too, and their deaths.
#include "sim/test/hsa_calls.h"

using namespace simtest;

namespace {

constexpr uint32_t kExecutable = 1 << 2;

TEST(SimHsaProcesses, ShareTheDeviceAndLeaveNothing) {
  TestNode node("2xtiny-amd");
  const auto hold = [](int dev, uint64_t mib) {
    return [=](Child& parent) {
      const Machine machine = hsa_start();
      void* address = nullptr;
      parent.say(static_cast<uint64_t>(
          pool_take(machine.gpu[static_cast<size_t>(dev)].coarse, mib * kMiB, &address)));
      parent.hear();
    };
  };
  Child first(hold(0, 600)), second(hold(1, 400));
  EXPECT_EQ(first.hear(), 0u);
  EXPECT_EQ(second.hear(), 0u);
  EXPECT_EQ(node->used(0), 602 * kMiB);
  EXPECT_EQ(node->used(1), 402 * kMiB);
  EXPECT_EQ(node->used_by_pid(0, first.pid()), 601 * kMiB);
  EXPECT_EQ(node->used_by_pid(1, first.pid()), kContext);
  Child third(hold(0, 500));
  EXPECT_EQ(third.hear(), static_cast<uint64_t>(HSA_STATUS_ERROR_OUT_OF_RESOURCES));
  first.kill();
  EXPECT_EQ(node->used(0), 2 * kMiB);
  Child fourth(hold(0, 500));
  EXPECT_EQ(fourth.hear(), 0u);
}

TEST(SimHsaProcesses, MayUseBothVendors) {
  TestNode node("tiny+tiny-amd");
  in_child([&] {
    const Machine machine = hsa_start();
    ASSERT_EQ(machine.gpu.size(), 1u);
    ASSERT_EQ(cu_start(), 0);
    unsigned long long theirs = 0;
    void* ours = nullptr;
    ASSERT_EQ(cu_alloc(&theirs, 10 * kMiB), 0);
    ASSERT_EQ(pool_take(machine.gpu[0].coarse, 20 * kMiB, &ours), 0);
    EXPECT_EQ(node->used(0), 74 * kMiB);
    EXPECT_EQ(node->used(1), kContext + 20 * kMiB);
    EXPECT_EQ(hsa_stop(), 0);
    EXPECT_EQ(node->used(0), 74 * kMiB);
    EXPECT_EQ(node->used(1), 0u);
  });
  EXPECT_EQ(node->used(0), 0u);
}

TEST(SimHsaProcesses, DeathInTheMiddle) {
  TestNode node("tiny-amd");
  kill_in_the_middle(node, 60, [](Child& parent) {
    const Machine machine = hsa_start();
    parent.say(0);
    for (uint32_t turn = 0;; ++turn) {
      void *small = nullptr, *large = nullptr;
      EXPECT_EQ(pool_take(machine.gpu[0].coarse, 64 * kKiB, &small, turn % 2 * kExecutable), 0);
      EXPECT_EQ(pool_take(machine.gpu[0].coarse, 10 * kMiB, &large), 0);
      pool_free(large);
      pool_free(small);
    }
  });
}

}  // namespace
