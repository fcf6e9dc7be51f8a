// Tests of AMD devices on the simulated node: the identity that each kernel gives to partitions,
// accounting in 4 KiB, and mixed nodes, of which every vendor's libraries see their own part.
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "sim/node/account.h"
#include "sim/test/support.h"

using namespace simtest;
using sim::Vendor;

namespace {

constexpr uint64_t kGiB = 1ULL << 30;

// An account of this process for as long as the test's child lives.
std::unique_ptr<sim::Account> join() {
  std::string error;
  auto account = sim::Account::open(&error, Vendor::kAmd);
  EXPECT_NE(account, nullptr) << error;
  return account;
}

TEST(SimAmd, ProfilesHaveTheProductsSizes) {
  const struct {
    const char* profile;
    int devices;
    uint64_t mib;
    uint32_t units, gfx;
  } cases[] = {{"mi300x", 1, 196592, 304, 90402},          {"mi300x-dpx", 2, 98296, 152, 90402},
               {"mi300x-qpx", 4, 49148, 76, 90402},        {"mi300x-cpx-nps4", 8, 24574, 38, 90402},
               {"mi300x-cpx-nps1", 8, 24574, 38, 90402},   {"mi210", 1, 65520, 104, 90010},
               {"2xmi210", 2, 65520, 104, 90010},          {"tiny-amd", 1, 1024, 16, 90010},
               {"8xmi300x-cpx-nps1", 64, 24574, 38, 90402}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.profile);
    TestNode node(one.profile);
    ASSERT_EQ(node->device_count(), one.devices);
    EXPECT_EQ(node->device_count(Vendor::kAmd), one.devices);
    EXPECT_EQ(node->device_count(Vendor::kNvidia), 0);
    std::set<uint32_t> ids;
    for (int dev = 0; dev < one.devices; ++dev) {
      const sim::DeviceRow& row = node->device(dev);
      EXPECT_EQ(row.total, one.mib * kMiB);
      EXPECT_EQ(row.context_bytes, kMiB);
      EXPECT_EQ(row.multiprocessors, one.units);
      EXPECT_EQ(row.gfx_target_version, one.gfx);
      EXPECT_EQ(row.kfd_node, static_cast<uint32_t>(dev + 1));
      EXPECT_NE(row.kfd_gpu_id, 0u);
      ids.insert(row.kfd_gpu_id);
    }
    EXPECT_EQ(ids.size(), static_cast<size_t>(one.devices));
  }
}

TEST(SimAmd, WhoeverPassesTheHeightThatIsWatchedLeavesEvidence) {
  TestNode node("tiny-amd");
  const std::string watched = node.path() + ".watched", seen = node.path() + ".seen";
  std::ofstream(watched) << "as it was";
  const auto content = [](const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  setenv(sim::kWatchVariable, ("40960:" + watched + ":" + seen).c_str(), 1);
  in_child([&] {
    auto account = join();
    ASSERT_TRUE(account->reserve(0, 40960, sim::Kind::kAllocation));
    EXPECT_EQ(content(seen), "");
    ASSERT_TRUE(account->reserve(0, 4096, sim::Kind::kModule));
    EXPECT_EQ(content(seen), "as it was");
    const std::string line =
        "pid " + std::to_string(getpid()) + ": context 1, allocations 10 grains, climbed\n";
    EXPECT_NE(content(seen + ".rows").find(line), std::string::npos) << content(seen + ".rows");
    std::ofstream(watched) << "as it is later";
    ASSERT_TRUE(account->reserve(0, 4096, sim::Kind::kAllocation));
    EXPECT_EQ(content(seen), "as it was") << "the first one's evidence is the one to keep";
  });
  unsetenv(sim::kWatchVariable);
  for (const std::string& path : {watched, seen, seen + ".rows"}) unlink(path.c_str());
}

TEST(SimAmd, RefusesWhatIsNoProfile) {
  for (const char* profile : {"mi300x-fn", "mi210-xcp", "9xtiny-cpx", "tiny+", "+tiny", "0xmi210",
                              "8xmi300x-cpx-nps1+tiny", "mi300x-cpx-nps4-fn-xcp", "tiny-amd@",
                              "tiny-amd@reversed,tiny"}) {
    std::string error;
    EXPECT_FALSE(sim::Node::create("/dev/shm/simtest-none", profile, {}, &error)) << profile;
    EXPECT_NE(error.find(profile), std::string::npos) << error;
  }
  sim::NodeOptions options;
  options.total_mib = 600 * 1024;  // more than a tally holds
  EXPECT_FALSE(sim::Node::create("/dev/shm/simtest-none", "mi300x", options));
}

TEST(SimAmd, EveryKernelNamesPartitionsItsWay) {
  const auto look = [](const char* profile, auto&& each) {
    SCOPED_TRACE(profile);
    TestNode node(profile);
    std::set<uint64_t> unique;
    std::set<std::string> buses, uuids;
    for (int dev = 0; dev < node->device_count(); ++dev) {
      const sim::DeviceRow& row = node->device(dev);
      EXPECT_EQ(row.partition, static_cast<uint32_t>(dev));
      EXPECT_EQ(row.partitions, 8u);
      EXPECT_EQ(row.location_id & 0xfff8, 0x1800u);
      each(row, static_cast<uint32_t>(dev));
      unique.insert(row.unique_id);
      buses.insert(node->bus_id(dev));
      uuids.insert(node->uuid(dev));
      EXPECT_EQ(node->uuid(dev), "GPU-" + std::string(reinterpret_cast<const char*>(row.uuid), 16));
    }
    EXPECT_EQ(unique.size(), uuids.size());
    return std::pair(unique.size(), buses.size());
  };
  const auto high = [](const sim::DeviceRow& row, uint32_t partition) {
    EXPECT_EQ(row.location_id >> 28, partition);
    EXPECT_EQ(row.location_id & 7, 0u);
  };
  const auto function = [](const sim::DeviceRow& row, uint32_t partition) {
    EXPECT_EQ(row.location_id >> 28, 0u);
    EXPECT_EQ(row.location_id & 7, partition);
  };
  const std::pair<size_t, size_t> same{1, 1}, functions{1, 8}, own{8, 1};
  for (const char* base : {"mi300x-cpx-nps4", "mi300x-cpx-nps1", "tiny-cpx"}) {
    EXPECT_EQ(look(base, high), same);
    EXPECT_EQ(look((base + std::string("-fn")).c_str(), function), functions);
    EXPECT_EQ(look((base + std::string("-xcp")).c_str(), high), own);
  }
}

TEST(SimAmd, IdentityIsStable) {
  std::string first;
  uint32_t id = 0;
  for (int round = 0; round < 2; ++round) {
    TestNode node("tiny+tiny-cpx");
    if (round == 0) first = node->uuid(3), id = node->device(3).kfd_gpu_id;
    EXPECT_EQ(node->uuid(3), first);
    EXPECT_EQ(node->device(3).kfd_gpu_id, id);
    EXPECT_EQ(node->device(3).kfd_node, 3u);
    EXPECT_EQ(node->bus_id(3), "0000:24:00.0");
  }
}

TEST(SimAmd, BooksCountInGrains) {
  TestNode node("tiny-amd");
  in_child([&] {
    const auto account = join();
    const uint64_t total = account->total(0);
    EXPECT_TRUE(account->reserve(0, account->context_cost(0), sim::Kind::kContext));
    EXPECT_TRUE(account->reserve(0, 4096, sim::Kind::kAllocation));
    EXPECT_TRUE(account->reserve(0, 3 * 4096, sim::Kind::kAllocation));
    EXPECT_EQ(node->used(0), kMiB + 4 * 4096);
    EXPECT_EQ(node->tenant_used(0, "none"), kMiB + 4 * 4096);
    EXPECT_EQ(node->tenant_high_water(0, "none"), kMiB + 4 * 4096);
    EXPECT_EQ(node->used_by_pid(0, getpid()), kMiB + 4 * 4096);
    const uint64_t rest = total - kMiB - 4 * 4096;
    EXPECT_FALSE(account->reserve(0, rest + 4096, sim::Kind::kAllocation));
    EXPECT_TRUE(account->reserve(0, rest, sim::Kind::kAllocation));
    EXPECT_FALSE(account->reserve(0, 4096, sim::Kind::kAllocation));
    EXPECT_EQ(node->free(0), 0u);
    account->release(0, 3 * 4096, sim::Kind::kAllocation);
    EXPECT_EQ(node->free(0), 3u * 4096);
    EXPECT_EQ(node->tenant_high_water(0, "none"), total);
    EXPECT_TRUE(node->consistent());
  });
  EXPECT_EQ(node->used(0), 0u);
  EXPECT_EQ(node->tenant_used(0, "none"), 0u);
}

TEST(SimAmd, TheLargestDeviceFitsATally) {
  TestNode node("2xmi300x");
  in_child([&] {
    const auto account = join();
    for (int dev = 0; dev < 2; ++dev) {
      EXPECT_TRUE(account->reserve(dev, account->total(dev) - 4096, sim::Kind::kAllocation));
      EXPECT_TRUE(account->reserve(dev, 4096, sim::Kind::kAllocation));
      EXPECT_EQ(node->tenant_used(dev, "none"), 196592 * kMiB);
      EXPECT_EQ(node->tenant_high_water(dev, "none"), 196592 * kMiB);
    }
    EXPECT_GT(node->tenant_used(0, "none"), 128 * kGiB);
  });
  EXPECT_EQ(node->used(0) + node->used(1), 0u);
  EXPECT_EQ(node->tenant_high_water(1, "none"), 196592 * kMiB);
}

TEST(SimAmd, KillsBetweenSmallUpdatesLeaveNothing) {
  TestNode node("tiny-cpx");
  kill_in_the_middle(node, 60, [](Child& parent) {
    const auto account = join();
    parent.say(0);
    for (uint64_t grains = 1;; grains = grains * 5 % 1021) {
      for (const int dev : {0, 7}) {
        sim::Physical memory;
        if (!account->take(dev, grains * 4096, &memory)) continue;
        const uint32_t location[2] = {};
        if (grains % 7 == 0) account->share(&memory, sim::ObjectKind::kMemory, location);
        account->drop(&memory);
      }
    }
  });
  EXPECT_EQ(node->used(7), 0u);
}

TEST(SimAmd, EveryVendorSeesItsOwnDevices) {
  TestNode node("tiny-amd+2xtiny+tiny-cpx+tiny");
  EXPECT_EQ(node->devices(Vendor::kNvidia), (std::vector<int>{1, 2, 11}));
  EXPECT_EQ(node->device_count(Vendor::kAmd), 9);
  EXPECT_EQ(node->ordinal(11), 2);
  EXPECT_EQ(node->ordinal(10), 8);
  in_child([&] {
    ASSERT_EQ(cu_start(2), 0);
    int count = 0;
    EXPECT_EQ(cuda<int(int*)>("cuDeviceGetCount")(&count), 0);
    EXPECT_EQ(count, 3);
    unsigned long long address = 0;
    EXPECT_EQ(cu_alloc(&address, kMiB), 0);
    EXPECT_EQ(node->used(11), 66 * kMiB);
    EXPECT_EQ(node->used(0) + node->used(1) + node->used(2) + node->used(10), 0u);

    ASSERT_EQ(nvml<int()>("nvmlInit_v2")(), 0);
    unsigned devices = 0, index = 0;
    EXPECT_EQ(nvml<int(unsigned*)>("nvmlDeviceGetCount_v2")(&devices), 0);
    EXPECT_EQ(devices, 3u);
    void* handle = nullptr;
    const auto by_index = nvml<int(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2");
    EXPECT_EQ(by_index(3, &handle), 2);
    EXPECT_EQ(by_index(2, &handle), 0);
    EXPECT_EQ(nvml<int(void*, unsigned*)>("nvmlDeviceGetIndex")(handle, &index), 0);
    EXPECT_EQ(index, 2u);
    char uuid[96];
    EXPECT_EQ(nvml<int(void*, char*, unsigned)>("nvmlDeviceGetUUID")(handle, uuid, sizeof uuid), 0);
    EXPECT_EQ(uuid, node->uuid(11));
    const auto by_uuid = nvml<int(const char*, void**)>("nvmlDeviceGetHandleByUUID");
    EXPECT_EQ(by_uuid(uuid, &handle), 0);
    EXPECT_EQ(by_uuid(node->uuid(3).c_str(), &handle), 6);
    struct {
      unsigned long long total, free, used;
    } memory{};
    EXPECT_EQ(nvml<int(void*, void*)>("nvmlDeviceGetMemoryInfo")(handle, &memory), 0);
    EXPECT_EQ(memory.used, 66 * kMiB);
  });
  in_child([&] {
    setenv("CUDA_VISIBLE_DEVICES", ("2," + node->uuid(1) + ",7").c_str(), 1);
    ASSERT_EQ(cu_start(1), 0);
    int count = 0;
    EXPECT_EQ(cuda<int(int*)>("cuDeviceGetCount")(&count), 0);
    EXPECT_EQ(count, 2);
    EXPECT_EQ(node->used(1), 64 * kMiB);
  });
}

TEST(SimAmd, WithoutItsDevicesAVendorsLibraryDoesNotStart) {
  TestNode node("tiny-amd");
  in_child([] {
    EXPECT_EQ(cuda<int(unsigned)>("cuInit")(0), 100);
    EXPECT_EQ(nvml<int()>("nvmlInit_v2")(), 9);
  });
  EXPECT_TRUE(node->processes().empty());
  TestNode other("tiny");
  std::string error;
  EXPECT_EQ(sim::Account::open(&error, Vendor::kAmd), nullptr);
  EXPECT_EQ(error, "");
}

}  // namespace
