// Virtual memory management of the simulated HSA runtime: in whatever order handles and mappings
// go, the memory goes with the last of them.
#include <cstring>

#include "sim/test/hsa_vmem_calls.h"

using namespace simtest;

namespace {

constexpr int kInvalidArgument = HSA_STATUS_ERROR_INVALID_ARGUMENT;
constexpr int kInvalidAllocation = HSA_STATUS_ERROR_INVALID_ALLOCATION;

TEST(SimHsaVmem, MemoryGoesWithTheLastHandleOrMapping) {
  TestNode node("tiny-amd");
  in_child([&] {
    const Machine machine = hsa_start();
    const auto used = [&] { return node->used(0) - kContext; };
    constexpr size_t kBytes = 4 * kMiB;
    Handle handle{};
    void* address = nullptr;
    EXPECT_EQ(vmem_create(machine.gpu[0], 100, &handle), kInvalidArgument);
    EXPECT_EQ(vmem_create(machine.gpu[0], 12 * kKiB, &handle), 0);
    EXPECT_EQ(used(), 12 * kKiB);
    EXPECT_EQ(vmem_release(handle), 0);
    EXPECT_EQ(vmem_release(handle), kInvalidAllocation);
    EXPECT_EQ(used(), 0u);
    ASSERT_EQ(vmem_reserve(&address, 2 * kBytes), 0);
    EXPECT_EQ(used(), 0u);
    // The handle first, then the mapping.
    ASSERT_EQ(vmem_create(machine.gpu[0], kBytes, &handle), 0);
    EXPECT_EQ(vmem_map(address, kBytes / 2, handle), kInvalidArgument);
    ASSERT_EQ(vmem_map(address, kBytes, handle), 0);
    std::memset(address, 1, kBytes);
    EXPECT_EQ(vmem_map(address, kBytes, handle), kInvalidArgument);
    EXPECT_EQ(vmem_release(handle), 0);
    EXPECT_EQ(used(), kBytes);
    EXPECT_EQ(vmem_unreserve(address, 2 * kBytes), HSA_STATUS_ERROR_RESOURCE_FREE);
    EXPECT_EQ(vmem_unmap(address, kBytes / 2), kInvalidArgument);
    EXPECT_EQ(vmem_unmap(address, kBytes), 0);
    EXPECT_EQ(used(), 0u);
    // The mapping first; two of them.
    ASSERT_EQ(vmem_create(machine.gpu[0], kBytes, &handle), 0);
    void* const behind = static_cast<char*>(address) + kBytes;
    ASSERT_EQ(vmem_map(address, kBytes, handle), 0);
    ASSERT_EQ(vmem_map(behind, kBytes, handle), 0);
    EXPECT_EQ(vmem_unmap(address, kBytes), 0);
    EXPECT_EQ(vmem_unmap(behind, kBytes), 0);
    EXPECT_EQ(used(), kBytes);
    EXPECT_EQ(vmem_release(handle), 0);
    EXPECT_EQ(used(), 0u);
    // A handle that is retained from the mapping alone.
    ASSERT_EQ(vmem_create(machine.gpu[0], kBytes, &handle), 0);
    ASSERT_EQ(vmem_map(address, kBytes, handle), 0);
    EXPECT_EQ(vmem_release(handle), 0);
    Handle again{};
    ASSERT_EQ(vmem_retain(&again, static_cast<char*>(address) + 5), 0);
    EXPECT_EQ(again.handle, handle.handle);
    EXPECT_EQ(vmem_unmap(address, kBytes), 0);
    EXPECT_EQ(used(), kBytes);
    EXPECT_EQ(vmem_release(again), 0);
    EXPECT_EQ(used(), 0u);
    EXPECT_EQ(vmem_unreserve(address, kBytes), kInvalidArgument);
    EXPECT_EQ(vmem_unreserve(address, 2 * kBytes), 0);
    EXPECT_EQ(vmem_unreserve(address, 2 * kBytes), kInvalidAllocation);
    EXPECT_EQ(vmem_create(machine.gpu[0], 1024 * kMiB, &handle), HSA_STATUS_ERROR_OUT_OF_RESOURCES);
  });
}

TEST(SimHsaVmem, AccessAndProperties) {
  TestNode node("tiny-amd");
  in_child([&] {
    const Machine machine = hsa_start();
    const hsa_agent_t agent = machine.gpu[0].agent;
    Handle handle{};
    void* address = nullptr;
    ASSERT_EQ(vmem_reserve(&address, 2 * kMiB), 0);
    ASSERT_EQ(vmem_create(machine.gpu[0], 2 * kMiB, &handle), 0);
    ASSERT_EQ(vmem_map(address, 2 * kMiB, handle), 0);
    auto* get = hsa<int(void*, int*, hsa_agent_t)>("hsa_amd_vmem_get_access");
    int permission = 0;
    EXPECT_EQ(get(address, &permission, agent), kInvalidAllocation);
    const sim::AccessDescription wanted = {HSA_ACCESS_PERMISSION_RW, agent};
    EXPECT_EQ(hsa<int(void*, size_t, const void*, size_t)>("hsa_amd_vmem_set_access")(
                  address, 2 * kMiB, &wanted, 1),
              0);
    EXPECT_EQ(get(address, &permission, agent), 0);
    EXPECT_EQ(permission, HSA_ACCESS_PERMISSION_RW);
    hsa_amd_memory_pool_t pool{};
    uint32_t type = 0;
    EXPECT_EQ(hsa<int(Handle, hsa_amd_memory_pool_t*, uint32_t*)>(
                  "hsa_amd_vmem_get_alloc_properties_from_handle")(handle, &pool, &type),
              0);
    EXPECT_EQ(pool.handle, machine.gpu[0].coarse.handle);
    EXPECT_EQ(type, kPinned);
    void* aligned = nullptr;
    EXPECT_EQ(hsa<int(void**, size_t, uint64_t, uint64_t, uint64_t)>(
                  "hsa_amd_vmem_address_reserve_align")(&aligned, 4096, 0, 1 << 30, 0),
              0);
    EXPECT_EQ(reinterpret_cast<uint64_t>(aligned) % (1 << 30), 0u);
  });
  EXPECT_EQ(node->used(0), 0u);
}

}  // namespace
