// Accounting of pool memory: rounding, fragments and their cache, what goes straight to the kernel,
// a full device.
#include <cstdlib>
#include <cstring>

#include "sim/test/hsa_calls.h"

using namespace simtest;

namespace {

constexpr int kOutOfResources = HSA_STATUS_ERROR_OUT_OF_RESOURCES;
constexpr int kInvalidAllocation = HSA_STATUS_ERROR_INVALID_ALLOCATION;
constexpr int kInvalidArgument = HSA_STATUS_ERROR_INVALID_ARGUMENT;
constexpr uint32_t kExecutable = 1 << 2;

class SimHsaMemory : public testing::Test {
 protected:
  // Bytes beyond the context.
  uint64_t used() { return node_->used(0) - kContext; }
  void* take(size_t bytes, uint32_t flags = 0) {
    void* address = nullptr;
    EXPECT_EQ(pool_take(machine_.gpu[0].coarse, bytes, &address, flags), 0) << bytes;
    return address;
  }
  void with_runtime(const std::function<void()>& body) {
    in_child([&] {
      machine_ = hsa_start();
      body();
    });
    EXPECT_EQ(node_->used(0), 0u);
    std::string difference;
    EXPECT_TRUE(node_->consistent(&difference)) << difference;
  }

  TestNode node_{"tiny-amd"};
  Machine machine_;
};

TEST_F(SimHsaMemory, LargeRequestsAreBlocksOfTheirOwn) {
  with_runtime([&] {
    void* first = take(2 * kMiB + 1);
    EXPECT_EQ(used(), 4 * kMiB);
    void* second = take(100 * kMiB);
    EXPECT_EQ(used(), 104 * kMiB);
    EXPECT_EQ(reinterpret_cast<uint64_t>(second) % (2 * kMiB), 0u);
    std::memset(second, 7, 100 * kMiB);
    // What is left of the first block serves nobody.
    void* third = take(kMiB);
    EXPECT_EQ(used(), 106 * kMiB);
    EXPECT_EQ(pool_free(second), 0);
    EXPECT_EQ(used(), 6 * kMiB);
    EXPECT_EQ(pool_free(first), 0);
    EXPECT_EQ(used(), 2 * kMiB);
    EXPECT_EQ(pool_free(third), 0);
    EXPECT_EQ(used(), 2 * kMiB);  // cached
  });
}

TEST_F(SimHsaMemory, SmallRequestsShareBlocks) {
  with_runtime([&] {
    void* first = take(1);  // 4 KiB
    EXPECT_EQ(used(), 2 * kMiB);
    void* second = take(kMiB);
    void* third = take(kMiB - 4 * kKiB);
    EXPECT_EQ(used(), 2 * kMiB);  // full to the last byte
    void* fourth = take(4 * kKiB);
    EXPECT_EQ(used(), 4 * kMiB);
    // The best fit: the hole of 1 MiB, not the rest of the second block.
    EXPECT_EQ(pool_free(second), 0);
    EXPECT_EQ(take(kMiB), second);
    EXPECT_EQ(pool_free(first), 0);
    EXPECT_EQ(take(100), first);
    // Neighbouring holes join.
    EXPECT_EQ(pool_free(first), 0);
    EXPECT_EQ(pool_free(second), 0);
    EXPECT_EQ(take(kMiB + 4 * kKiB), first);
    EXPECT_EQ(pool_free(first), 0);
    EXPECT_EQ(pool_free(third), 0);
    EXPECT_EQ(pool_free(fourth), 0);
    // Of two free blocks the older goes.
    EXPECT_EQ(used(), 2 * kMiB);
  });
}

TEST_F(SimHsaMemory, TheCacheHoldsTwiceWhatIsInUse) {
  with_runtime([&] {
    std::vector<void*> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(take(2 * kMiB));
    EXPECT_EQ(used(), 16 * kMiB);
    // With n blocks in use, 2n may be cached, and one in any case.
    for (size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_EQ(pool_free(blocks[i]), 0);
      const uint64_t in_use = 7 - i;
      const uint64_t cached = std::max<uint64_t>(1, std::min<uint64_t>(i + 1, 2 * in_use));
      EXPECT_EQ(used(), (in_use + cached) * 2 * kMiB) << i;
    }
    // A whole block is no use to a request of a whole block, only to smaller ones.
    void* whole = take(2 * kMiB);
    EXPECT_EQ(used(), 4 * kMiB);
    void* smaller = take(2 * kMiB - 4 * kKiB);
    EXPECT_EQ(used(), 4 * kMiB);
    // Blocks of their own are not in use, as far as the cache is concerned.
    void* large = take(20 * kMiB);
    EXPECT_EQ(pool_free(whole), 0);
    EXPECT_EQ(used(), 24 * kMiB);
    EXPECT_EQ(pool_free(smaller), 0);
    EXPECT_EQ(used(), 22 * kMiB);
    EXPECT_EQ(pool_free(large), 0);
    EXPECT_EQ(used(), 2 * kMiB);
  });
}

TEST_F(SimHsaMemory, PoolsHaveTheirOwnFragments) {
  with_runtime([&] {
    void* coarse = take(4096);
    void* fine = nullptr;
    ASSERT_EQ(pool_take(machine_.gpu[0].fine, 4096, &fine), 0);
    EXPECT_EQ(used(), 4 * kMiB);
    EXPECT_EQ(pool_free(coarse), 0);
    EXPECT_EQ(pool_free(fine), 0);
    EXPECT_EQ(used(), 4 * kMiB);  // one cached in each
  });
}

TEST_F(SimHsaMemory, FlagsGoStraightToTheKernel) {
  with_runtime([&] {
    void* address = take(5000, kExecutable);
    EXPECT_EQ(used(), 8 * kKiB);
    void* large = take(3 * kMiB + 1, kExecutable);
    EXPECT_EQ(used(), 3 * kMiB + 12 * kKiB);
    EXPECT_EQ(pool_free(address), 0);
    EXPECT_EQ(pool_free(large), 0);
    EXPECT_EQ(used(), 0u);
  });
}

TEST_F(SimHsaMemory, FragmentsCanBeSwitchedOff) {
  setenv("HSA_DISABLE_FRAGMENT_ALLOCATOR", "1", 1);
  with_runtime([&] {
    void* address = take(1);
    EXPECT_EQ(used(), 4 * kKiB);
    EXPECT_EQ(pool_free(address), 0);
    EXPECT_EQ(used(), 0u);
  });
  unsetenv("HSA_DISABLE_FRAGMENT_ALLOCATOR");
}

TEST_F(SimHsaMemory, FullIsFullAndTheCacheGivesWay) {
  with_runtime([&] {
    void* address = nullptr;
    const auto coarse = machine_.gpu[0].coarse;
    EXPECT_EQ(pool_take(coarse, 1024 * kMiB + 1, &address), kInvalidAllocation);
    EXPECT_EQ(pool_take(coarse, 1024 * kMiB, &address), kOutOfResources);
    EXPECT_EQ(pool_take(coarse, 0, &address), kInvalidArgument);
    EXPECT_EQ(pool_take(coarse, 4096, nullptr), kInvalidArgument);
    EXPECT_EQ(pool_take({1234}, 4096, &address), HSA_STATUS_ERROR_INVALID_MEMORY_POOL);
    EXPECT_EQ(pool_take(machine_.gpu[0].group, 4096, &address), kInvalidAllocation);
    EXPECT_EQ(address, nullptr);
    EXPECT_EQ(used(), 0u);
    // 1023 MiB beside the context: 511 blocks, and 1 MiB that only the kernel can give.
    EXPECT_EQ(pool_free(take(4096)), 0);
    EXPECT_EQ(used(), 2 * kMiB);
    take(1022 * kMiB);
    EXPECT_EQ(used(), 1022 * kMiB);
    EXPECT_EQ(pool_take(coarse, 4096, &address), kOutOfResources);
    take(kMiB, kExecutable);
    EXPECT_EQ(used(), 1023 * kMiB);
    EXPECT_EQ(free_bytes(machine_.gpu[0]), 0u);
    EXPECT_EQ(pool_take(coarse, 4096, &address, kExecutable), kOutOfResources);
  });
}

TEST_F(SimHsaMemory, TheCacheOfAnotherPoolGivesWayToo) {
  with_runtime([&] {
    void* fine = nullptr;
    ASSERT_EQ(pool_take(machine_.gpu[0].fine, 4096, &fine), 0);
    EXPECT_EQ(pool_free(fine), 0);
    take(1022 * kMiB);
    EXPECT_EQ(used(), 1022 * kMiB);
  });
}

TEST_F(SimHsaMemory, UnknownAddressesAreNotFreed) {
  with_runtime([&] {
    char* address = static_cast<char*>(take(8192));
    int local = 0;
    EXPECT_EQ(pool_free(nullptr), 0);
    EXPECT_EQ(pool_free(&local), kInvalidAllocation);
    EXPECT_EQ(pool_free(address + 4096), kInvalidAllocation);
    EXPECT_EQ(pool_free(address), 0);
    EXPECT_EQ(pool_free(address), kInvalidAllocation);
  });
}

TEST_F(SimHsaMemory, HostPoolsCostTheDeviceNothing) {
  with_runtime([&] {
    void* address = nullptr;
    ASSERT_EQ(pool_take(machine_.host, 64 * kMiB, &address), 0);
    std::memset(address, 1, 64 * kMiB);
    EXPECT_EQ(used(), 0u);
    EXPECT_EQ(pool_free(address), 0);
  });
}

TEST_F(SimHsaMemory, RegionsAreThePoolsByAnotherName) {
  with_runtime([&] {
    std::vector<hsa_region_t> regions;
    hsa<int(hsa_agent_t, int (*)(hsa_region_t, void*), void*)>("hsa_agent_iterate_regions")(
        machine_.gpu[0].agent,
        [](hsa_region_t region, void* list) {
          static_cast<std::vector<hsa_region_t>*>(list)->push_back(region);
          return 0;
        },
        &regions);
    ASSERT_EQ(regions.size(), 3u);
    size_t size = 0;
    EXPECT_EQ(hsa<int(hsa_region_t, int, void*)>("hsa_region_get_info")(
                  regions[0], HSA_REGION_INFO_SIZE, &size),
              0);
    EXPECT_EQ(size, 1024 * kMiB);
    void* address = nullptr;
    EXPECT_EQ(hsa<int(hsa_region_t, size_t, void**)>("hsa_memory_allocate")(regions[0], 5 * kMiB,
                                                                            &address),
              0);
    EXPECT_EQ(used(), 6 * kMiB);
    EXPECT_EQ(hsa<int(void*)>("hsa_memory_free")(address), 0);
    EXPECT_EQ(used(), 0u);
  });
}

TEST_F(SimHsaMemory, PointersAreDescribed) {
  with_runtime([&] {
    auto* describe = hsa<int(const void*, void*, void* (*)(size_t), uint32_t*, hsa_agent_t**)>(
        "hsa_amd_pointer_info");
    char* address = static_cast<char*>(take(5000));
    sim::PointerInfo info = {};
    info.size = sizeof info;
    EXPECT_EQ(describe(address + 4097, &info, nullptr, nullptr, nullptr), 0);
    EXPECT_EQ(info.type, HSA_EXT_POINTER_TYPE_HSA);
    EXPECT_EQ(info.agent_base, address);
    EXPECT_EQ(info.bytes, 8192u);
    EXPECT_EQ(info.owner.handle, machine_.gpu[0].agent.handle);
    // A caller of 5.2 has a shorter structure, and nothing behind it is touched.
    struct {
      hsa_amd_pointer_info_t info;
      uint64_t behind;
    } old = {};
    old.info.size = sizeof old.info;
    old.behind = 77;
    EXPECT_EQ(describe(address, &old.info, nullptr, nullptr, nullptr), 0);
    EXPECT_EQ(old.behind, 77u);
    EXPECT_EQ(old.info.sizeInBytes, 8192u);
    uint32_t count = 0;
    hsa_agent_t* reach = nullptr;
    const hsa_agent_t both[] = {machine_.processor, machine_.gpu[0].agent};
    EXPECT_EQ(hsa<int(uint32_t, const hsa_agent_t*, const uint32_t*, const void*)>(
                  "hsa_amd_agents_allow_access")(2, both, nullptr, address),
              0);
    EXPECT_EQ(describe(address, &info, std::malloc, &count, &reach), 0);
    EXPECT_EQ(count, 2u);
    std::free(reach);
    int local = 0;
    EXPECT_EQ(describe(&local, &info, nullptr, nullptr, nullptr), 0);
    EXPECT_EQ(info.type, HSA_EXT_POINTER_TYPE_UNKNOWN);
    void* locked = nullptr;
    EXPECT_EQ(hsa<int(void*, size_t, void*, int, void**)>("hsa_amd_memory_lock")(
                  &local, sizeof local, nullptr, 0, &locked),
              0);
    EXPECT_EQ(describe(&local, &info, nullptr, nullptr, nullptr), 0);
    EXPECT_EQ(info.type, HSA_EXT_POINTER_TYPE_LOCKED);
    EXPECT_EQ(hsa<int(void*)>("hsa_amd_memory_unlock")(&local), 0);
    EXPECT_EQ(hsa<int(void*)>("hsa_amd_memory_unlock")(&local), kInvalidArgument);
  });
}

}  // namespace
