// Tests of stream-ordered allocation: what a pool reserves, reuses and gives back, and when.
// The physical bytes are read from the node by the observer. A context costs 64 MiB here. Pools in
// odd places, their ends and their limits are in pool_life_test.cc, sharing in pool_share_test.cc.
#include "sim/test/pool_calls.h"

using namespace simtest;

namespace {

constexpr uint64_t kContext = 64;

uint64_t mib(TestNode& node) {
  return node->used(0) / kMiB;
}

TEST(SimPool, ChunksAndParts) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUmemoryPool pool = default_pool();
    const CUstream stream = stream_create();
    Pointer a = 0, b = 0, c = 0, d = 0, e = 0;
    EXPECT_EQ(reserved(pool), 0u);
    ASSERT_EQ(alloc_async(&a, 1, stream), 0);
    EXPECT_EQ(reserved(pool), 32u);
    EXPECT_EQ(mib(node), kContext + 32);
    EXPECT_EQ(node->used_by_pid(0, getpid()), (kContext + 32) * kMiB);
    EXPECT_EQ(used_bytes(pool), 512u);
    ASSERT_EQ(alloc_async(&b, 513, stream), 0);
    EXPECT_EQ(b, a + 512);
    EXPECT_EQ(used_bytes(pool), 1536u);
    ASSERT_EQ(alloc_async(&c, 31 * kMiB, stream), 0);
    EXPECT_EQ(reserved(pool), 32u);
    ASSERT_EQ(alloc_async(&d, 32 * kMiB, stream), 0);
    EXPECT_EQ(reserved(pool), 64u);
    // Larger requests have a chunk of their own, of whole steps.
    ASSERT_EQ(alloc_async(&e, 32 * kMiB + 1, stream), 0);
    EXPECT_EQ(reserved(pool), 128u);
    EXPECT_EQ(mib(node), kContext + 128);
    // The rest of that chunk is for others.
    Pointer f = 0;
    ASSERT_EQ(alloc_async(&f, kMiB, stream), 0);
    EXPECT_EQ(reserved(pool), 128u);
    Pointer base = 0;
    size_t size = 0;
    ASSERT_EQ(
        (cuda<int(Pointer*, size_t*, Pointer)>("cuMemGetAddressRange_v2")(&base, &size, b + 100)),
        0);
    EXPECT_EQ(base, b);
    EXPECT_EQ(size, 513u);
    auto* fill = cuda<int(Pointer, unsigned char, size_t)>("cuMemsetD8_v2");
    EXPECT_EQ(fill(e, 0, 32 * kMiB + 1), 0);
    EXPECT_EQ(fill(b, 0, 514), 1);
    CUmemoryPool of = nullptr;
    EXPECT_EQ((cuda<int(void*, int, Pointer)>("cuPointerGetAttribute")(&of, 17, b)), 0);
    EXPECT_EQ(of, pool);
    EXPECT_EQ(alloc_async(&f, 0, stream), 1);
  });
  EXPECT_EQ(node->used(0), 0u);
}

TEST(SimPool, ReuseFollowsTheStream) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUmemoryPool pool = default_pool();
    const CUstream one = stream_create(), two = stream_create();
    Pointer a = 0, b = 0, c = 0;
    ASSERT_EQ(alloc_async(&a, 20 * kMiB, one), 0);
    ASSERT_EQ(free_async(a, one), 0);
    EXPECT_EQ(used_bytes(pool), 0u);
    ASSERT_EQ(alloc_async(&b, 20 * kMiB, one), 0);
    EXPECT_EQ(b, a);  // the same stream: at once
    EXPECT_EQ(reserved(pool), 32u);
    ASSERT_EQ(free_async(b, one), 0);
    ASSERT_EQ(alloc_async(&b, 20 * kMiB, two), 0);
    EXPECT_NE(b, a);  // another one: not before the first was waited for
    EXPECT_EQ(reserved(pool), 64u);
    ASSERT_EQ(stream_sync(two), 0);
    ASSERT_EQ(alloc_async(&c, 12 * kMiB, two), 0);
    EXPECT_EQ(reserved(pool), 64u);
    ASSERT_EQ(free_async(c, two), 0);
    ASSERT_EQ(pool_set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX), 0);
    ASSERT_EQ(stream_sync(one), 0);
    ASSERT_EQ(stream_sync(two), 0);
    ASSERT_EQ(alloc_async(&c, 32 * kMiB, two), 0);
    EXPECT_EQ(c, a);
    EXPECT_EQ(reserved(pool), 64u);
  });
}

TEST(SimPool, FreedNeighboursMerge) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUmemoryPool pool = default_pool();
    ASSERT_EQ(pool_set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX), 0);
    const CUstream stream = stream_create();
    Pointer part[8], whole = 0;
    for (Pointer& address : part) ASSERT_EQ(alloc_async(&address, 4 * kMiB, stream), 0);
    for (const int i : {1, 6, 3, 0, 2, 7, 5, 4}) ASSERT_EQ(free_async(part[i], stream), 0);
    ASSERT_EQ(stream_sync(stream), 0);
    ASSERT_EQ(alloc_async(&whole, 32 * kMiB, stream), 0);
    EXPECT_EQ(whole, part[0]);
    EXPECT_EQ(reserved(pool), 32u);
  });
}

TEST(SimPool, GivesBackWhenWaitedFor) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUmemoryPool pool = default_pool();
    const CUstream stream = stream_create(), other = stream_create();
    Pointer a[3];
    for (Pointer& address : a) ASSERT_EQ(alloc_async(&address, 30 * kMiB, stream), 0);
    EXPECT_EQ(mib(node), kContext + 96);
    ASSERT_EQ(free_async(a[0], stream), 0);
    EXPECT_EQ(mib(node), kContext + 96);
    ASSERT_EQ(stream_sync(other), 0);
    EXPECT_EQ(mib(node), kContext + 96);  // waited for the wrong one
    ASSERT_EQ(stream_sync(stream), 0);
    EXPECT_EQ(mib(node), kContext + 64);
    EXPECT_EQ(reserved(pool), 64u);
    // Up to the threshold it keeps.
    ASSERT_EQ(pool_set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 40 * kMiB), 0);
    ASSERT_EQ(free_async(a[1], stream), 0);
    ASSERT_EQ(free_async(a[2], stream), 0);
    ASSERT_EQ(context_sync(), 0);
    EXPECT_EQ(reserved(pool), 32u);
    EXPECT_EQ(mib(node), kContext + 32);
    // Also what a new threshold no longer covers, at the next wait for anything.
    ASSERT_EQ(pool_set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0), 0);
    EXPECT_EQ(mib(node), kContext + 32);
    ASSERT_EQ(stream_sync(other), 0);
    EXPECT_EQ(mib(node), kContext);
  });
}

TEST(SimPool, EventsReachWhatCameBeforeThem) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUstream stream = stream_create();
    const CUevent event = event_create();
    Pointer a = 0, b = 0;
    ASSERT_EQ(alloc_async(&a, 32 * kMiB, stream), 0);
    ASSERT_EQ(alloc_async(&b, 32 * kMiB, stream), 0);
    EXPECT_EQ(event_sync(event), 0);  // never recorded: nothing to wait for
    ASSERT_EQ(free_async(a, stream), 0);
    ASSERT_EQ(event_record(event, stream), 0);
    ASSERT_EQ(free_async(b, stream), 0);
    ASSERT_EQ(event_sync(event), 0);
    EXPECT_EQ(mib(node), kContext + 32);
    ASSERT_EQ(event_record(event, stream), 0);
    ASSERT_EQ(event_sync(event), 0);
    EXPECT_EQ(mib(node), kContext);
  });
}

TEST(SimPool, DefaultStreams) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUstream blocking = stream_create(0), aside = stream_create(1);
    const auto per_thread = reinterpret_cast<CUstream>(2);
    Pointer a = 0;
    const auto left_after = [&](CUstream freed, CUstream waited) {
      EXPECT_EQ(alloc_async(&a, 10 * kMiB, freed), 0);
      EXPECT_EQ(free_async(a, freed), 0);
      EXPECT_EQ(stream_sync(waited), 0);
      const uint64_t left = mib(node) - kContext;
      EXPECT_EQ(context_sync(), 0);
      EXPECT_EQ(mib(node), kContext);
      return left;
    };
    // The legacy stream waits for the blocking ones, the thread's own included.
    EXPECT_EQ(left_after(nullptr, nullptr), 0u);
    EXPECT_EQ(left_after(nullptr, reinterpret_cast<CUstream>(1)), 0u);
    EXPECT_EQ(left_after(blocking, nullptr), 0u);
    EXPECT_EQ(left_after(per_thread, nullptr), 0u);
    EXPECT_EQ(left_after(aside, nullptr), 32u);
    EXPECT_EQ(left_after(blocking, per_thread), 32u);
    auto* alloc = cuda<int(Pointer*, size_t, CUstream)>("cuMemAllocAsync_ptsz");
    auto* free = cuda<int(Pointer, CUstream)>("cuMemFreeAsync_ptsz");
    ASSERT_EQ(alloc(&a, 10 * kMiB, nullptr), 0);
    ASSERT_EQ(free(a, nullptr), 0);
    ASSERT_EQ(stream_sync(blocking), 0);
    EXPECT_EQ(mib(node), kContext + 32);
    ASSERT_EQ(stream_sync(per_thread), 0);
    EXPECT_EQ(mib(node), kContext);
    // A destroyed stream still does its work.
    ASSERT_EQ(alloc_async(&a, 10 * kMiB, aside), 0);
    ASSERT_EQ(free_async(a, aside), 0);
    ASSERT_EQ(cuda<int(CUstream)>("cuStreamDestroy_v2")(aside), 0);
    EXPECT_EQ(mib(node), kContext + 32);
    ASSERT_EQ(context_sync(), 0);
    EXPECT_EQ(mib(node), kContext);
    EXPECT_EQ(alloc_async(&a, 1, aside), 400);
    // Streams know their context.
    CUcontext context = nullptr, current = nullptr;
    ASSERT_EQ(cuda<int(CUcontext*)>("cuCtxGetCurrent")(&current), 0);
    for (const CUstream stream : {blocking, per_thread, CUstream{}}) {
      ASSERT_EQ((cuda<int(CUstream, CUcontext*)>("cuStreamGetCtx")(stream, &context)), 0);
      EXPECT_EQ(context, current);
    }
  });
}

TEST(SimPool, TrimSparesLivePartsAndWhatItMustKeep) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUmemoryPool pool = default_pool();
    ASSERT_EQ(pool_set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX), 0);
    const CUstream stream = stream_create();
    Pointer a[4];
    for (Pointer& address : a) ASSERT_EQ(alloc_async(&address, 32 * kMiB, stream), 0);
    ASSERT_EQ(free_async(a[0], stream), 0);
    ASSERT_EQ(free_async(a[1], stream), 0);
    ASSERT_EQ(pool_trim(pool, 0), 0);
    EXPECT_EQ(reserved(pool), 128u);  // nobody knows yet that the frees were done
    ASSERT_EQ(stream_sync(stream), 0);
    EXPECT_EQ(reserved(pool), 128u);
    ASSERT_EQ(pool_trim(pool, 110 * kMiB), 0);
    EXPECT_EQ(reserved(pool), 128u);  // 96 would be too little
    ASSERT_EQ(pool_trim(pool, 90 * kMiB), 0);
    EXPECT_EQ(reserved(pool), 96u);
    ASSERT_EQ(pool_trim(pool, 0), 0);
    EXPECT_EQ(reserved(pool), 64u);
    EXPECT_EQ(mib(node), kContext + 64);
    EXPECT_EQ(cu_free(a[2]), 0);  // at once
    EXPECT_EQ(used_bytes(pool), 32 * kMiB);
    ASSERT_EQ(pool_trim(pool, 0), 0);
    EXPECT_EQ(mib(node), kContext + 32);
  });
}

TEST(SimPool, FreesThatAreRefused) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUstream stream = stream_create();
    Pointer a = 0, b = 0, c = 0;
    ASSERT_EQ(alloc_async(&a, kMiB, stream), 0);
    EXPECT_EQ(free_async(a + 512, stream), 1);
    EXPECT_EQ(cu_free(a + 512), 1);
    EXPECT_EQ(free_async(a, stream), 0);
    EXPECT_EQ(free_async(a, stream), 1);
    EXPECT_EQ(cu_free(a), 1);
    ASSERT_EQ(alloc_async(&a, kMiB, stream), 0);
    EXPECT_EQ(cu_free(a), 0);
    EXPECT_EQ(cu_free(a), 1);
    EXPECT_EQ(free_async(a, stream), 1);
    EXPECT_EQ(free_async(0x1234, stream), 1);
    ASSERT_EQ(context_sync(), 0);
    // Memory of cuMemAlloc, large and small: gone when the stream gets there.
    ASSERT_EQ(cu_alloc(&b, 10 * kMiB), 0);
    ASSERT_EQ(cu_alloc(&c, 512), 0);
    EXPECT_EQ(mib(node), kContext + 12);
    EXPECT_EQ(free_async(b, stream), 0);
    EXPECT_EQ(free_async(c, stream), 0);
    EXPECT_EQ(mib(node), kContext + 12);
    EXPECT_EQ(free_async(b, stream), 1);
    EXPECT_EQ(cu_free(b), 1);
    ASSERT_EQ(stream_sync(stream), 0);
    EXPECT_EQ(mib(node), kContext);
    EXPECT_EQ(cu_free(b), 1);
    EXPECT_EQ(cu_free(c), 1);
  });
}

TEST(SimPool, HighMarksAndFlags) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUmemoryPool pool = default_pool();
    const CUstream stream = stream_create();
    Pointer a = 0, b = 0;
    ASSERT_EQ(alloc_async(&a, 64 * kMiB, stream), 0);
    ASSERT_EQ(alloc_async(&b, kMiB, stream), 0);
    ASSERT_EQ(free_async(a, stream), 0);
    ASSERT_EQ(stream_sync(stream), 0);
    uint64_t value = 0;
    ASSERT_EQ(pool_get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &value), 0);
    EXPECT_EQ(value, 96 * kMiB);
    ASSERT_EQ(pool_get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value), 0);
    EXPECT_EQ(value, 65 * kMiB);
    EXPECT_EQ(pool_set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 1), 1);
    EXPECT_EQ(pool_set(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, 0), 1);
    EXPECT_EQ(pool_set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0), 0);
    EXPECT_EQ(pool_set(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0), 0);
    ASSERT_EQ(pool_get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &value), 0);
    EXPECT_EQ(value, 32 * kMiB);
    ASSERT_EQ(pool_get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value), 0);
    EXPECT_EQ(value, kMiB);
    for (int flag = 1; flag <= 3; ++flag) {
      value = UINT64_MAX;
      ASSERT_EQ(pool_get(pool, flag, &value), 0);
      EXPECT_EQ(value, 0xffffffff00000001U);  // an int, and on by default
      ASSERT_EQ(pool_set(pool, flag, 0), 0);
      ASSERT_EQ(pool_get(pool, flag, &value), 0);
      EXPECT_EQ(value, 0xffffffff00000000U);
    }
    EXPECT_EQ(pool_get(pool, 99, &value), 1);
    EXPECT_EQ(pool_get(nullptr, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value), 1);
  });
}

}  // namespace
