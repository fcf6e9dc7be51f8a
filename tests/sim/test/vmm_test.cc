// Tests of virtual memory management in one process: what keeps physical memory and what does not.
// The bytes are read from the node by the observer. Sharing between processes is in share_test.cc.
#include "sim/test/vmm_calls.h"

using namespace simtest;

namespace {

uint64_t mib(TestNode& node) {
  return node->used(0) / kMiB;
}

TEST(SimVmm, HandleAndMappingsKeepTheMemory) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    Handle handle = 0, again = 0;
    Pointer address = 0;
    ASSERT_EQ(vmm_create(&handle, 10 * kMiB), 0);
    EXPECT_EQ(mib(node), 74u);
    EXPECT_EQ(node->used_by_pid(0, getpid()), 74 * kMiB);
    ASSERT_EQ(vmm_reserve(&address, 64 * kMiB), 0);
    EXPECT_EQ(mib(node), 74u);  // addresses cost nothing
    ASSERT_EQ(vmm_map(address, 10 * kMiB, handle), 0);
    ASSERT_EQ(vmm_map(address + 20 * kMiB, 10 * kMiB, handle), 0);
    ASSERT_EQ(vmm_release(handle), 0);
    EXPECT_EQ(vmm_release(handle), 1);
    EXPECT_EQ(vmm_map(address + 40 * kMiB, 10 * kMiB, handle), 1);
    EXPECT_EQ(mib(node), 74u);
    ASSERT_EQ(vmm_unmap(address, 10 * kMiB), 0);
    EXPECT_EQ(mib(node), 74u);
    ASSERT_EQ(vmm_retain(&again, address + 25 * kMiB), 0);
    EXPECT_EQ(again, handle);
    ASSERT_EQ(vmm_unmap(address + 20 * kMiB, 10 * kMiB), 0);
    EXPECT_EQ(mib(node), 74u);
    ASSERT_EQ(vmm_release(again), 0);
    EXPECT_EQ(mib(node), 64u);
    EXPECT_EQ(vmm_retain(&again, address), 1);
    // The other order: every reference first counted, then the handle goes last.
    ASSERT_EQ(vmm_create(&handle, 2 * kMiB), 0);
    ASSERT_EQ(vmm_map(address, 2 * kMiB, handle), 0);
    ASSERT_EQ(vmm_retain(&again, address), 0);
    ASSERT_EQ(vmm_unmap(address, 2 * kMiB), 0);
    ASSERT_EQ(vmm_release(handle), 0);
    EXPECT_EQ(mib(node), 66u);
    ASSERT_EQ(vmm_release(handle), 0);
    EXPECT_EQ(mib(node), 64u);
    EXPECT_EQ(vmm_unreserve(address, 64 * kMiB), 0);
  });
  EXPECT_EQ(node->used(0), 0u);
}

TEST(SimVmm, UnmappingTakesWholeMappingsOnly) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    Pointer address = 0;
    ASSERT_EQ(vmm_reserve(&address, 64 * kMiB), 0);
    for (const uint64_t at : {0, 4, 8, 16}) {
      Handle handle = 0;
      ASSERT_EQ(vmm_create(&handle, 4 * kMiB), 0);
      ASSERT_EQ(vmm_map(address + at * kMiB, 4 * kMiB, handle), 0);
      EXPECT_EQ(vmm_map(address + at * kMiB, 4 * kMiB, handle), 1);
      EXPECT_EQ(vmm_map(address + at * kMiB + 2 * kMiB, 2 * kMiB, handle), 1);
      ASSERT_EQ(vmm_release(handle), 0);
    }
    EXPECT_EQ(mib(node), 80u);
    EXPECT_EQ(vmm_unmap(address, 2 * kMiB), 1);
    EXPECT_EQ(vmm_unmap(address, 6 * kMiB), 1);
    EXPECT_EQ(vmm_unmap(address + 2 * kMiB, 6 * kMiB), 1);
    EXPECT_EQ(vmm_unmap(address, 20 * kMiB), 1);  // across a gap
    EXPECT_EQ(vmm_unreserve(address, 64 * kMiB), 1);
    EXPECT_EQ(mib(node), 80u);
    EXPECT_EQ(vmm_unmap(address, 8 * kMiB), 0);
    EXPECT_EQ(mib(node), 72u);
    EXPECT_EQ(vmm_unmap(address, 8 * kMiB), 1);
    EXPECT_EQ(vmm_unmap(address + 8 * kMiB, 4 * kMiB), 0);
    EXPECT_EQ(vmm_unmap(address + 16 * kMiB, 4 * kMiB), 0);
    EXPECT_EQ(vmm_unreserve(address, 32 * kMiB), 1);
    EXPECT_EQ(vmm_unreserve(address, 64 * kMiB), 0);
    EXPECT_EQ(vmm_unreserve(address, 64 * kMiB), 1);
  });
}

TEST(SimVmm, Errors) {
  TestNode node;
  in_child([&] {
    Handle handle = 7;
    EXPECT_EQ(vmm_create(&handle, 2 * kMiB), 3);
    ASSERT_EQ(cuda<int(unsigned)>("cuInit")(0), 0);
    EXPECT_EQ(vmm_create(&handle, kMiB), 1);
    EXPECT_EQ(vmm_create(&handle, 0), 1);
    EXPECT_EQ(vmm_create(&handle, 2 * kMiB, prop_of(CU_MEM_LOCATION_TYPE_DEVICE, 1)), 101);
    EXPECT_EQ(vmm_create(&handle, 2 * kMiB, prop_of(0)), 1);
    EXPECT_EQ(vmm_create(&handle, 1026 * kMiB), 2);
    EXPECT_EQ(handle, 7u);
    EXPECT_EQ(vmm_release(7), 1);
    // No context is needed, and the last byte can be had.
    ASSERT_EQ(vmm_create(&handle, 1024 * kMiB), 0);
    Handle more = 0;
    EXPECT_EQ(vmm_create(&more, 2 * kMiB), 2);
    EXPECT_EQ(vmm_release(handle), 0);
    size_t granularity = 0;
    const CUmemAllocationProp prop = prop_of();
    auto* ask =
        cuda<int(size_t*, const CUmemAllocationProp*, int)>("cuMemGetAllocationGranularity");
    for (const int option : {0, 1}) {
      EXPECT_EQ(ask(&granularity, &prop, option), 0);
      EXPECT_EQ(granularity, 2 * kMiB);
    }
  });
}

TEST(SimVmm, HostMemoryIsNotTheDevices) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    Handle handle = 0;
    Pointer address = 0;
    ASSERT_EQ(vmm_reserve(&address, 64 * kMiB), 0);
    for (const int type : {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA,
                           CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT}) {
      ASSERT_EQ(vmm_create(&handle, 64 * kMiB, prop_of(type)), 0);
      ASSERT_EQ(vmm_map(address, 64 * kMiB, handle), 0);
      EXPECT_EQ(mib(node), 64u);
      CUmemAllocationProp prop = {};
      ASSERT_EQ((cuda<int(CUmemAllocationProp*, Handle)>("cuMemGetAllocationPropertiesFromHandle")(
                    &prop, handle)),
                0);
      EXPECT_EQ(prop.location.type, type);
      EXPECT_EQ(vmm_unmap(address, 64 * kMiB), 0);
      EXPECT_EQ(vmm_release(handle), 0);
      EXPECT_EQ(mib(node), 64u);
    }
  });
}

TEST(SimVmm, AccessIsGranted) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    Handle handle = 0;
    Pointer address = 0;
    ASSERT_EQ(vmm_reserve(&address, 8 * kMiB), 0);
    ASSERT_EQ(vmm_create(&handle, 4 * kMiB), 0);
    ASSERT_EQ(vmm_map(address, 4 * kMiB, handle), 0);
    auto* fill = cuda<int(Pointer, unsigned char, size_t)>("cuMemsetD8_v2");
    auto* grant = cuda<int(Pointer, size_t, const CUmemAccessDesc*, size_t)>("cuMemSetAccess");
    auto* ask = cuda<int(unsigned long long*, const CUmemLocation*, Pointer)>("cuMemGetAccess");
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, 3};
    unsigned long long flags = 9;
    EXPECT_EQ(fill(address, 0, kMiB), 1);
    ASSERT_EQ(ask(&flags, &access.location, address), 0);
    EXPECT_EQ(flags, 0u);
    EXPECT_EQ(grant(address, 8 * kMiB, &access, 1), 1);
    EXPECT_EQ(grant(address, 4 * kMiB, &access, 1), 0);
    ASSERT_EQ(ask(&flags, &access.location, address + 2 * kMiB), 0);
    EXPECT_EQ(flags, 3u);
    EXPECT_EQ(fill(address + kMiB, 0, 3 * kMiB), 0);
    EXPECT_EQ(fill(address + kMiB, 0, 3 * kMiB + 1), 1);
    EXPECT_EQ(cu_free(address), 1);
    EXPECT_EQ(vmm_unmap(address, 4 * kMiB), 0);
    EXPECT_EQ(fill(address, 0, 1), 1);
    EXPECT_EQ(ask(&flags, &access.location, address), 1);
  });
}

TEST(SimVmm, BindingToMulticastKeepsTheMemory) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    CUmulticastObjectProp prop = {};
    prop.numDevices = 1;
    prop.size = 16 * kMiB;
    Handle object = 0, memory = 0;
    ASSERT_EQ(
        (cuda<int(Handle*, const CUmulticastObjectProp*)>("cuMulticastCreate")(&object, &prop)), 0);
    ASSERT_EQ(vmm_create(&memory, 8 * kMiB), 0);
    auto* bind = cuda<int(Handle, size_t, Handle, size_t, size_t, uint64_t)>("cuMulticastBindMem");
    auto* unbind = cuda<int(Handle, int, size_t, size_t)>("cuMulticastUnbind");
    EXPECT_EQ(bind(object, 0, memory, 0, 8 * kMiB, 0), 1);
    ASSERT_EQ((cuda<int(Handle, int)>("cuMulticastAddDevice")(object, 0)), 0);
    EXPECT_EQ(bind(object, 0, memory, 0, 10 * kMiB, 0), 1);
    ASSERT_EQ(bind(object, 0, memory, 0, 8 * kMiB, 0), 0);
    EXPECT_EQ(bind(object, 4 * kMiB, memory, 0, 8 * kMiB, 0), 1);
    ASSERT_EQ(vmm_release(memory), 0);
    EXPECT_EQ(mib(node), 72u);
    EXPECT_EQ(unbind(object, 0, 0, 4 * kMiB), 1);
    ASSERT_EQ(unbind(object, 0, 0, 8 * kMiB), 0);
    EXPECT_EQ(mib(node), 64u);
    // The object's own end unbinds; a mapping of the object keeps it.
    Pointer address = 0;
    ASSERT_EQ(vmm_create(&memory, 8 * kMiB), 0);
    ASSERT_EQ(vmm_reserve(&address, 32 * kMiB), 0);
    ASSERT_EQ(vmm_map(address, 16 * kMiB, object), 0);
    ASSERT_EQ(vmm_map(address + 16 * kMiB, 8 * kMiB, memory), 0);
    ASSERT_EQ((cuda<int(Handle, size_t, Pointer, size_t, uint64_t)>("cuMulticastBindAddr")(
                  object, 8 * kMiB, address + 16 * kMiB, 8 * kMiB, 0)),
              0);
    auto* bind_on =
        cuda<int(Handle, int, size_t, Pointer, size_t, uint64_t)>("cuMulticastBindAddr_v2");
    EXPECT_EQ(bind_on(object, 1, 0, address + 16 * kMiB, 8 * kMiB, 0), 101);
    ASSERT_EQ(bind_on(object, 0, 0, address + 16 * kMiB, 8 * kMiB, 0), 0);
    ASSERT_EQ(unbind(object, 0, 8 * kMiB, 8 * kMiB), 0);
    ASSERT_EQ((cuda<int(Handle, int, size_t, Handle, size_t, size_t, uint64_t)>(
                  "cuMulticastBindMem_v2")(object, 0, 8 * kMiB, memory, 0, 8 * kMiB, 0)),
              0);
    ASSERT_EQ(unbind(object, 0, 0, 8 * kMiB), 0);
    ASSERT_EQ(vmm_unmap(address + 16 * kMiB, 8 * kMiB), 0);
    ASSERT_EQ(vmm_release(memory), 0);
    ASSERT_EQ(vmm_release(object), 0);
    EXPECT_EQ(mib(node), 72u);
    ASSERT_EQ(vmm_unmap(address, 16 * kMiB), 0);
    EXPECT_EQ(mib(node), 64u);
  });
}

TEST(SimVmm, OrderedFailures) {
  TestNode node;
  setenv("FRACGPU_SIM_FAIL", "cuMemCreate:2=2,cuMemMap:1=999", 1);
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    Handle handle = 0;
    Pointer address = 0;
    EXPECT_EQ(vmm_create(&handle, 2 * kMiB), 0);
    EXPECT_EQ(vmm_create(&handle, 2 * kMiB), 2);
    EXPECT_EQ(vmm_reserve(&address, 2 * kMiB), 0);
    EXPECT_EQ(vmm_map(address, 2 * kMiB, handle), 999);
    EXPECT_EQ(vmm_map(address, 2 * kMiB, handle), 0);
    EXPECT_EQ(mib(node), 66u);
  });
  unsetenv("FRACGPU_SIM_FAIL");
}

}  // namespace
