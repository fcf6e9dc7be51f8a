// Boards that are divided anew: what comes and goes, who is in the way, and that a kill leaves the
// modes of before or those that were wanted.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "sim/kfd/topology_files.h"
#include "sim/kfd/tree.h"
#include "sim/node/account.h"
#include "sim/node/amd_partitions.h"
#include "sim/test/support.h"

using sim::ModeChange;
using sim::set_compute_mode;
using sim::set_memory_mode;
using sim::Vendor;
using simtest::Child;
using simtest::kMiB;
using simtest::TestNode;

namespace {

std::vector<uint32_t> gpu_ids(TestNode& node) {
  std::vector<uint32_t> ids;
  for (const int dev : node->devices(Vendor::kAmd)) ids.push_back(node->device(dev).kfd_gpu_id);
  return ids;
}

std::string file(TestNode& node, const std::string& name) {
  std::ifstream from(sim::kfd_tree_of(node.path()) + name);
  std::string line;
  std::getline(from, line);
  return line;
}
std::string mode_file(TestNode& node, int minor, const std::string& name) {
  return file(node, "/sys/class/drm/renderD" + std::to_string(minor) + "/device/" + name);
}

// One board is in one mode, with all its rows, and the tree in the folder says the same.
void expect_whole(TestNode& node) {
  std::set<uint32_t> ids, nodes;
  for (const int dev : node->devices(Vendor::kAmd)) {
    const sim::DeviceRow& row = node->device(dev);
    ids.insert(row.kfd_gpu_id);
    nodes.insert(row.kfd_node);
    EXPECT_EQ(row.partitions, node->devices(Vendor::kAmd).size());
    EXPECT_EQ(row.total, 196592 * kMiB / row.partitions);
    EXPECT_EQ(row.used.load(), 0u);
  }
  EXPECT_EQ(ids.size(), node->devices(Vendor::kAmd).size());
  EXPECT_EQ(*nodes.rbegin(), ids.size()) << "nodes are numbered without gaps";
  ASSERT_TRUE(sim::make_kfd_tree(node.path(), *node->file()));
  for (const int dev : node->devices(Vendor::kAmd)) {
    const sim::DeviceRow& row = node->device(dev);
    EXPECT_EQ(
        file(node, "/sys/class/kfd/kfd/topology/nodes/" + std::to_string(row.kfd_node) + "/gpu_id"),
        std::to_string(row.kfd_gpu_id));
  }
}

TEST(SimPartitions, ComeAndGo) {
  TestNode node("tiny+2xmi300x");
  const std::vector<uint32_t> whole = gpu_ids(node);
  ASSERT_EQ(set_compute_mode(*node, 1, 8), ModeChange::kDone);
  const std::vector<int> devices = node->devices(Vendor::kAmd);
  ASSERT_EQ(devices.size(), 9u);
  EXPECT_EQ(devices.front(), 1) << "rows do not move";
  EXPECT_EQ(devices.back(), 2);
  EXPECT_EQ(node->ordinal(2), 8);
  for (int p = 0; p < 8; ++p) {
    const sim::DeviceRow& row = node->device(devices[static_cast<size_t>(p)]);
    EXPECT_EQ(row.total, 24574 * kMiB);
    EXPECT_EQ(row.multiprocessors, 38u);
    EXPECT_EQ(row.partition, static_cast<uint32_t>(p));
    EXPECT_EQ(row.location_id >> 28, static_cast<uint32_t>(p));
    EXPECT_EQ(row.kfd_node, static_cast<uint32_t>(p) + 1);
    EXPECT_EQ(row.unique_id, node->device(1).unique_id);
    EXPECT_EQ(sim::render_minor(*node->file(), devices[static_cast<size_t>(p)]),
              128u + static_cast<uint32_t>(p));
  }
  EXPECT_EQ(node->device(2).kfd_node, 9u);
  EXPECT_EQ(sim::render_minor(*node->file(), 2), 136u);
  const std::vector<uint32_t> divided = gpu_ids(node);
  EXPECT_EQ(std::set(divided.begin(), divided.end()).size(), 9u);
  EXPECT_NE(divided[0], whole[0]) << "it is another device";
  EXPECT_EQ(divided[8], whole[1]);
  ASSERT_EQ(set_compute_mode(*node, 1, 1), ModeChange::kDone);
  EXPECT_EQ(gpu_ids(node), whole);
  ASSERT_EQ(set_compute_mode(*node, 1, 8), ModeChange::kDone);
  EXPECT_EQ(gpu_ids(node), divided);
}

TEST(SimPartitions, KernelsTellThemApartAsBefore) {
  for (const auto& [profile, unique, functions] :
       {std::tuple("mi300x-cpx-nps4", 1u, 1u), std::tuple("mi300x-cpx-nps4-fn", 1u, 4u),
        std::tuple("mi300x-cpx-nps4-xcp", 4u, 1u)}) {
    SCOPED_TRACE(profile);
    TestNode node(profile);
    ASSERT_EQ(set_compute_mode(*node, 0, 4), ModeChange::kDone);
    std::set<uint64_t> ids, places;
    for (const int dev : node->devices(Vendor::kAmd)) {
      ids.insert(node->device(dev).unique_id);
      places.insert(node->device(dev).location_id & 7);
    }
    EXPECT_EQ(ids.size(), unique);
    EXPECT_EQ(places.size(), functions);
  }
}

TEST(SimPartitions, WhatGoesTogetherIsAmds) {
  struct {
    const char* profile;
    std::vector<std::pair<uint32_t, uint32_t>> good;
  } chips[] = {
      {"mi300x", {{1, 1}, {2, 1}, {4, 1}, {8, 1}, {2, 2}, {4, 4}, {8, 4}}},
      {"mi325x", {{1, 1}, {2, 1}, {4, 1}, {8, 1}, {2, 2}, {4, 4}, {8, 4}}},
      {"mi355x", {{1, 1}, {2, 1}, {4, 1}, {8, 1}, {2, 2}, {4, 2}, {8, 2}}},
      {"mi210", {}},
  };
  for (const auto& chip : chips) {
    SCOPED_TRACE(chip.profile);
    TestNode node(chip.profile);
    for (const uint32_t partitions : {1u, 2u, 3u, 4u, 8u}) {
      for (const uint32_t ranges : {1u, 2u, 4u, 8u}) {
        const bool good = std::ranges::count(chip.good, std::pair(partitions, ranges)) != 0;
        EXPECT_EQ(sim::goes_with(node->device(0), partitions, ranges), good)
            << partitions << " " << ranges;
      }
    }
  }
  TestNode node("mi210");
  EXPECT_EQ(set_compute_mode(*node, 0, 8), ModeChange::kNotSupported);
  EXPECT_EQ(set_memory_mode(*node, 0, 1), ModeChange::kNotSupported);
}

TEST(SimPartitions, SysfsTellsTheModes) {
  TestNode node("mi300x+mi355x");
  EXPECT_EQ(mode_file(node, 128, "current_compute_partition"), "SPX");
  EXPECT_EQ(mode_file(node, 128, "available_compute_partition"), "SPX, DPX, QPX, CPX");
  EXPECT_EQ(mode_file(node, 128, "available_memory_partition"), "NPS1, NPS2, NPS4");
  EXPECT_EQ(mode_file(node, 136, "available_memory_partition"), "NPS1, NPS2");
  ASSERT_EQ(set_memory_mode(*node, 0, 2), ModeChange::kDone);
  for (const int minor : {128, 136}) {
    EXPECT_EQ(mode_file(node, minor, "current_memory_partition"), "NPS2");
    EXPECT_EQ(mode_file(node, minor, "current_compute_partition"), "DPX") << "by itself";
  }
  EXPECT_EQ(mode_file(node, 128, "available_compute_partition"), "DPX");
  EXPECT_EQ(mode_file(node, 136, "available_compute_partition"), "DPX, QPX, CPX");
  EXPECT_EQ(set_compute_mode(*node, 0, 8), ModeChange::kUnavailable);
  EXPECT_EQ(set_memory_mode(*node, 1, 4), ModeChange::kUnavailable);
  ASSERT_EQ(set_memory_mode(*node, 0, 4), ModeChange::kDone);
  EXPECT_EQ(mode_file(node, 128, "current_compute_partition"), "CPX");
  EXPECT_EQ(mode_file(node, 136, "current_memory_partition"), "NPS2") << "which has no NPS4";
}

TEST(SimPartitions, WhoHasKfdOpenIsInTheWay) {
  TestNode node("2xmi300x");
  Child idle([](Child& self) {
    std::string error;
    const auto account = sim::Account::open(&error, Vendor::kAmd);
    self.say(1);
    self.hear();
  });
  idle.hear();
  EXPECT_EQ(set_compute_mode(*node, 0, 8), ModeChange::kBusy);
  EXPECT_EQ(set_memory_mode(*node, 0, 4), ModeChange::kBusy);
  EXPECT_EQ(sim::reload_driver(*node), ModeChange::kBusy);
  idle.kill();
  EXPECT_EQ(set_compute_mode(*node, 0, 8), ModeChange::kDone);
}

// A process keeps what it has on another board, in the same row.
TEST(SimPartitions, AContainerWithoutTheBoardIsNot) {
  TestNode node("2xmi300x");
  setenv("FRACGPU_SIM_HIDDEN", "0", 1);
  Child contained([](Child& self) {
    std::string error;
    const auto account = sim::Account::open(&error, Vendor::kAmd);
    self.say(account->reserve(1, kMiB, sim::Kind::kAllocation));
    self.hear();
    account->release(1, kMiB, sim::Kind::kAllocation);
    self.say(account->reserve(1, 2 * kMiB, sim::Kind::kAllocation));
    self.hear();
  });
  unsetenv("FRACGPU_SIM_HIDDEN");
  EXPECT_EQ(contained.hear(), 1u);
  EXPECT_FALSE(node->kfd_lists(contained.pid(), 0));
  EXPECT_EQ(set_compute_mode(*node, 1, 8), ModeChange::kBusy);
  ASSERT_EQ(set_compute_mode(*node, 0, 8), ModeChange::kDone);
  EXPECT_EQ(node->used(1), kMiB);
  contained.say(1);
  EXPECT_EQ(contained.hear(), 1u);
  EXPECT_EQ(node->used(1), 2 * kMiB);
  EXPECT_EQ(node->used(node->devices(Vendor::kAmd)[1]), 0u);
  EXPECT_EQ(set_memory_mode(*node, 0, 4), ModeChange::kBusy) << "the driver cannot be unloaded";
}

TEST(SimPartitions, ThereAreRowsForAsManyAsFit) {
  TestNode node("8xmi300x+tiny");
  for (int board = 0; board < 7; ++board)
    ASSERT_EQ(set_compute_mode(*node, board, 8), ModeChange::kDone);
  EXPECT_EQ(set_compute_mode(*node, 7, 8), ModeChange::kNoRoom);
  EXPECT_EQ(set_compute_mode(*node, 7, 4), ModeChange::kDone);
}

TEST(SimPartitions, AKillLeavesTheOldModesOrTheNew) {
  TestNode node("mi300x");
  for (int round = 0; round < 60; ++round) {
    Child changer([&](Child& self) {
      self.say(1);
      for (;;) {
        for (const uint32_t partitions : {8u, 1u, 4u, 2u}) set_compute_mode(*node, 0, partitions);
        set_memory_mode(*node, 0, 4);
        set_memory_mode(*node, 0, 1);
      }
    });
    changer.hear();
    usleep(static_cast<useconds_t>(50 + 97 * round % 5000));
    changer.kill();
    expect_whole(node);
    if (HasFailure()) break;
  }
  const std::filesystem::path folder = std::filesystem::path(node.path()).parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    // Trees that were half built, under names of their own.
    if (entry.path().string().starts_with(node.path() + ".sys."))
      std::filesystem::remove_all(entry.path());
  }
}

TEST(SimPartitions, TwoWhoChangeAtOnceTakeTurns) {
  TestNode node("mi300x");
  const auto change = [&](Child& self) {
    self.say(1);
    self.hear();
    for (int i = 0; i < 40; ++i)
      set_compute_mode(*node, 0, i % 2 == 0 ? 8 : static_cast<uint32_t>(1 + i % 4 / 2));
  };
  Child one(change), other(change);
  one.hear();
  other.hear();
  one.say(1);
  other.say(1);
  for (int i = 0; i < 200; ++i) {
    const size_t count = node->devices(Vendor::kAmd).size();
    EXPECT_TRUE(count == 1 || count == 2 || count == 8) << count;
  }
  EXPECT_TRUE(one.ended());
  EXPECT_TRUE(other.ended());
  expect_whole(node);
}

TEST(SimPartitions, ALargerDeviceCanBeFilled) {
  TestNode node("mi355x");
  std::string error;
  Child user([](Child& self) {
    std::string reason;
    const auto account = sim::Account::open(&reason, Vendor::kAmd);
    self.say(account->reserve(0, 294896 * kMiB, sim::Kind::kAllocation));
    self.say(account->reserve(0, 4096, sim::Kind::kAllocation));
    self.hear();
  });
  EXPECT_EQ(user.hear(), 1u);
  EXPECT_EQ(user.hear(), 0u);
  EXPECT_EQ(node->used(0), 309220868096u);
  EXPECT_EQ(node->tenant_high_water(0, "none"), 309220868096u);
}

}  // namespace
