// Tests of the node's accounting: death at any moment, races to fill the device, high-water marks,
// racing creators. Processes are killed with SIGKILL while they allocate; afterwards rows, devices
// and tenants must agree again. The only clock used is the one that a test about lingering memory
// is about.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <vector>

#include "sim/node/marks.h"
#include "sim/test/support.h"

using namespace simtest;

namespace {

using Pointer = unsigned long long;

TEST(SimAccounting, KilledProcessGivesEverythingBack) {
  TestNode node;
  Child child([](Child& parent) {
    ASSERT_EQ(cu_start(), 0);
    Pointer address = 0;
    ASSERT_EQ(cu_alloc(&address, 100 * kMiB), 0);
    parent.say(1);
    parent.hear();
  });
  child.hear();
  EXPECT_EQ(node->used_by_pid(0, child.pid()), 164 * kMiB);
  EXPECT_EQ(node->tenant_used(0, "none"), 164 * kMiB);
  child.kill();
  EXPECT_EQ(node->used(0), 0u);
  EXPECT_EQ(node->tenant_used(0, "none"), 0u);
  EXPECT_EQ(node->tenant_high_water(0, "none"), 164 * kMiB);
  EXPECT_TRUE(node->processes().empty());
}

TEST(SimAccounting, ClosingEveryDescriptorChangesNothing) {
  TestNode node;
  Child child([](Child& parent) {
    ASSERT_EQ(cu_start(), 0);
    for (int fd = 3; fd < 256; ++fd) {
      if (fcntl(fd, F_GETFL) != -1 && (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0) close(fd);
    }
    parent.say(1);
    parent.hear();
    Pointer address = 0;
    EXPECT_EQ(cu_alloc(&address, 10 * kMiB), 0);
    parent.say(2);
    parent.hear();
  });
  child.hear();
  EXPECT_EQ(node->used(0), 64 * kMiB);
  child.say(1);
  child.hear();
  EXPECT_EQ(node->used(0), 74 * kMiB);
  child.say(1);
  EXPECT_TRUE(child.ended());
  EXPECT_EQ(node->used(0), 0u);
}

TEST(SimAccounting, ForkedChildDoesNotKeepADeadParentsMemory) {
  TestNode node;
  Child parent_process([](Child& parent) {
    ASSERT_EQ(cu_start(), 0);
    const pid_t survivor = fork();
    if (survivor == 0) {
      parent.hear();  // lives until the test closes the pipe
      _exit(0);
    }
    parent.say(static_cast<uint64_t>(survivor));
    pause();
  });
  const auto survivor = static_cast<pid_t>(parent_process.hear());
  EXPECT_EQ(node->used(0), 64 * kMiB);
  parent_process.kill();
  EXPECT_EQ(::kill(survivor, 0), 0);
  EXPECT_EQ(node->used(0), 0u);
}

TEST(SimAccounting, EightProcessesFillExactlyTheDevice) {
  sim::NodeOptions options;
  options.context_mib = 8;
  TestNode node("tiny", options);
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < 8; ++i) {
    children.push_back(std::make_unique<Child>([](Child& parent) {
      ASSERT_EQ(cu_start(), 0);
      parent.say(0);
      parent.hear();
      Pointer address = 0;
      uint64_t made = 0;
      while (cu_alloc(&address, 2 * kMiB) == 0) ++made;
      parent.say(made);
      parent.hear();
    }));
  }
  for (auto& child : children) child->hear();
  for (auto& child : children) child->say(1);
  uint64_t made = 0;
  for (auto& child : children) made += child->hear();
  EXPECT_EQ(made, (1024u - 8 * 8u) / 2);
  EXPECT_EQ(node->used(0), node->total(0));
  EXPECT_EQ(node->tenant_high_water(0, "none"), node->total(0));
  std::string difference;
  EXPECT_TRUE(node->consistent(&difference)) << difference;
  for (auto& child : children) child->say(1);
  for (auto& child : children) EXPECT_TRUE(child->ended());
  EXPECT_EQ(node->used(0), 0u);
}

TEST(SimAccounting, KilledInTheMiddleOfAnything) {
  sim::NodeOptions options;
  options.context_mib = 2;
  TestNode node("tiny", options);
  // One process stays and works on, so that recounts meet running updates.
  Child steady([](Child& parent) {
    ASSERT_EQ(cu_start(), 0);
    parent.say(0);
    Pointer address = 0;
    for (int i = 0; i < 300000; ++i) {
      ASSERT_EQ(cu_alloc(&address, 4 * kMiB), 0);
      ASSERT_EQ(cu_free(address), 0);
    }
    parent.say(1);
    parent.hear();
  });
  steady.hear();
  std::atomic<uint64_t> turns{0};
  for (int round = 0; round < 60; ++round) {
    Child victim([](Child& parent) {
      ASSERT_EQ(cu_start(), 0);
      parent.say(0);
      Pointer address = 0;
      for (;;) {
        if (cu_alloc(&address, 2 * kMiB) == 0) cu_free(address);
      }
    });
    victim.hear();
    // A different number of turns of our own work each round lands the kill at different
    // instructions.
    for (int spin = 0; spin < round * 977; ++spin) turns.fetch_add(1);
    victim.kill();
    ASSERT_LE(node->used(0), 8 * kMiB);
  }
  steady.hear();
  std::string difference;
  EXPECT_TRUE(node->consistent(&difference)) << difference;
  EXPECT_EQ(node->used(0), 2 * kMiB);
  steady.say(1);
  EXPECT_TRUE(steady.ended());
  EXPECT_EQ(node->used(0), 0u);
}

TEST(SimAccounting, InterruptedUpdateIsCountedAgain) {
  TestNode node;
  Child child([](Child& parent) {
    ASSERT_EQ(cu_start(), 0);
    parent.say(0);
    parent.hear();
  });
  child.hear();
  // What a kill between the device's and the row's store leaves behind.
  node->file()->process[0].busy.store(1);
  node->file()->device[0].used.fetch_add(40 * kMiB);
  child.kill();
  EXPECT_EQ(node->used(0), 0u);
  // What a reaper killed in its work leaves behind.
  node->file()->header.epoch.fetch_add(1);
  node->file()->header.freeze.store(1);
  node->file()->device[0].used.store(6 * kMiB);
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    EXPECT_EQ(node->used(0), 64 * kMiB);
  });
}

TEST(SimAccounting, MarkNeverCountsTheDead) {
  TestNode node;
  Child first([](Child& parent) {
    ASSERT_EQ(cu_start(), 0);
    Pointer address = 0;
    ASSERT_EQ(cu_alloc(&address, 300 * kMiB), 0);
    parent.say(0);
    parent.hear();
  });
  first.hear();
  Child second([](Child& parent) {
    ASSERT_EQ(cu_start(), 0);
    parent.say(0);
    parent.hear();
    Pointer address = 0;
    ASSERT_EQ(cu_alloc(&address, 320 * kMiB), 0);
  });
  second.hear();
  first.kill();
  second.say(1);
  EXPECT_TRUE(second.ended());
  EXPECT_EQ(node->tenant_high_water(0, "none"), (64 + 300 + 64) * kMiB);
  node->reset_high_water();
  EXPECT_EQ(node->tenant_high_water(0, "none"), 0u);
}

TEST(SimAccounting, KilledBeforeItsPeakWasConfirmed) {
  TestNode node;
  const auto holder = [](uint64_t mib) {
    return [mib](Child& parent) {
      ASSERT_EQ(cu_start(), 0);
      Pointer address = 0;
      ASSERT_EQ(cu_alloc(&address, mib * kMiB), 0);
      parent.say(0);
      parent.hear();
    };
  };
  Child first(holder(100));
  first.hear();
  Child second(holder(200));
  second.hear();
  std::atomic<uint64_t>& mark = node->file()->tenant[0].device[0].high_water;
  // What a kill between the step and its confirmation leaves behind: the peak was real.
  mark.store(0);
  second.kill();
  EXPECT_EQ(node->tenant_high_water(0, "none"), (164 + 264) * kMiB);
  // If the dead were not those who reached the peak, only what the others held is known.
  node->reset_high_water();
  Child third(holder(300));
  third.hear();
  mark.store(0);
  first.kill();
  EXPECT_EQ(node->tenant_high_water(0, "none"), 364 * kMiB);
}

TEST(SimAccounting, SecondDeathInAnUpdateRaisesNoMark) {
  TestNode node;
  sim::TenantDevice& held = node->file()->tenant[0].device[0];
  constexpr int kRow = 3;
  sim::climb(held, 100 * kMiB, kRow);
  sim::descend(held, 40 * kMiB);
  // The owner is killed before its row says so. Another one's death has everything counted again,
  // and then it is buried itself.
  sim::set_recounted(held, 100 * kMiB);
  sim::bury(held, 100 * kMiB, kRow);
  EXPECT_LE(held.high_water.load(), 100 * kMiB);
  EXPECT_EQ(held.used(), 0u);
}

TEST(SimAccounting, TenantsAreSeparate) {
  TestNode node;
  const auto tenant = [](const char* tag, uint64_t mib) {
    setenv(sim::kTenantVariable, tag, 1);
    in_child([mib] {
      ASSERT_EQ(cu_start(), 0);
      Pointer address = 0;
      ASSERT_EQ(cu_alloc(&address, mib * kMiB), 0);
    });
    unsetenv(sim::kTenantVariable);
  };
  tenant("a", 10);
  tenant("b", 20);
  EXPECT_EQ(node->tenant_high_water(0, "a"), 74 * kMiB);
  EXPECT_EQ(node->tenant_high_water(0, "b"), 84 * kMiB);
  EXPECT_EQ(node->tenant_high_water(0, "c"), 0u);
}

TEST(SimAccounting, LingeringMemoryIsStillThere) {
  sim::NodeOptions options;
  options.linger_ms = 24ULL * 3600 * 1000;
  TestNode node("tiny", options);
  Child child([](Child& parent) {
    ASSERT_EQ(cu_start(), 0);
    parent.say(0);
    parent.hear();
  });
  child.hear();
  child.kill();
  EXPECT_EQ(node->used(0), 64 * kMiB);
  ASSERT_EQ(node->processes().size(), 1u);
  EXPECT_TRUE(node->processes()[0].lingering);
  node->file()->process[0].linger_ns = 1;
  EXPECT_EQ(node->used(0), 0u);
}

TEST(SimAccounting, RacingCreatorsAgree) {
  std::string path;
  {
    TestNode node;
    path = node.path();
  }
  setenv(sim::kNodeVariable, path.c_str(), 1);
  setenv(sim::kProfileVariable, "tiny", 1);
  {
    std::vector<std::unique_ptr<Child>> children;
    for (int i = 0; i < 6; ++i) {
      children.push_back(std::make_unique<Child>([](Child& parent) {
        EXPECT_EQ(cu_start(), 0);
        parent.say(0);
        parent.hear();
      }));
    }
    for (auto& child : children) child->hear();
    const auto node = sim::Node::open(path);
    ASSERT_NE(node, nullptr);
    EXPECT_EQ(node->used(0), 6 * 64 * kMiB);
    for (auto& child : children) child->say(1);
  }
  sim::Node::remove(path);
  unsetenv(sim::kNodeVariable);
  unsetenv(sim::kProfileVariable);
}

}  // namespace
