// Tests of the lives and limits of pools: destroyed ones, those of other places, full devices, dead
// processes and contexts that end. A context costs 64 MiB here, and a device has 1024.
#include <atomic>
#include <thread>
#include <vector>

#include "sim/test/pool_calls.h"

using namespace simtest;

namespace {

constexpr uint64_t kContext = 64;

uint64_t mib(TestNode& node) {
  return node->used(0) / kMiB;
}

int current_pool(CUmemoryPool* out, int dev) {
  return cuda<int(CUmemoryPool*, int)>("cuDeviceGetMemPool")(out, dev);
}
int set_current_pool(int dev, CUmemoryPool pool) {
  return cuda<int(int, CUmemoryPool)>("cuDeviceSetMemPool")(dev, pool);
}

TEST(SimPoolLife, DestroyedPoolsWaitForTheirParts) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUstream stream = stream_create();
    CUmemoryPool pool = nullptr, kept = nullptr, again = nullptr;
    Pointer a = 0, b = 0, c = 0;
    ASSERT_EQ(pool_create(&pool), 0);
    ASSERT_EQ(pool_create(&kept), 0);
    ASSERT_EQ(pool_set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX), 0);
    ASSERT_EQ(pool_alloc(&a, 64 * kMiB, pool, stream), 0);
    ASSERT_EQ(pool_alloc(&b, kMiB, pool, stream), 0);
    ASSERT_EQ(pool_alloc(&c, kMiB, kept, stream), 0);
    EXPECT_EQ(mib(node), kContext + 64 + 32 + 32);
    ASSERT_EQ(pool_destroy(pool), 0);
    EXPECT_EQ(pool_destroy(pool), 1);
    EXPECT_EQ(reserved(pool), UINT64_MAX);
    EXPECT_EQ(pool_trim(pool, 0), 1);
    EXPECT_EQ(pool_alloc(&c, 512, pool, stream), 1);
    EXPECT_EQ(mib(node), kContext + 64 + 32 + 32);
    ASSERT_EQ(pool_create(&again), 0);
    EXPECT_NE(again, pool);
    // It keeps what its threshold lets it keep as long as any part is in use.
    EXPECT_EQ(free_async(a, stream), 0);
    ASSERT_EQ(context_sync(), 0);
    EXPECT_EQ(mib(node), kContext + 64 + 32 + 32);
    EXPECT_EQ(free_async(b, stream), 0);
    EXPECT_EQ(mib(node), kContext + 64 + 32 + 32);
    ASSERT_EQ(stream_sync(stream), 0);
    EXPECT_EQ(mib(node), kContext + 32);
    // With nothing in it, a pool is gone at once, whatever it kept.
    ASSERT_EQ(pool_set(kept, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX), 0);
    ASSERT_EQ(cu_free(c), 0);
    EXPECT_EQ(mib(node), kContext + 32);
    ASSERT_EQ(pool_destroy(kept), 0);
    EXPECT_EQ(mib(node), kContext);
    // The last one freed without a stream.
    ASSERT_EQ(pool_alloc(&a, kMiB, again, stream), 0);
    ASSERT_EQ(pool_destroy(again), 0);
    EXPECT_EQ(mib(node), kContext + 32);
    ASSERT_EQ(cu_free(a), 0);
    EXPECT_EQ(mib(node), kContext);
    EXPECT_EQ(pool_destroy(default_pool()), 1);
  });
}

TEST(SimPoolLife, CurrentPool) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUstream stream = stream_create();
    CUmemoryPool pool = nullptr, current = nullptr, host = nullptr;
    ASSERT_EQ(current_pool(&current, 0), 0);
    EXPECT_EQ(current, default_pool());
    ASSERT_EQ(pool_create(&pool), 0);
    ASSERT_EQ(set_current_pool(0, pool), 0);
    ASSERT_EQ(current_pool(&current, 0), 0);
    EXPECT_EQ(current, pool);
    Pointer a = 0;
    ASSERT_EQ(alloc_async(&a, kMiB, stream), 0);
    EXPECT_EQ(reserved(pool), 32u);
    EXPECT_EQ(reserved(default_pool()), 0u);
    ASSERT_EQ(pool_destroy(pool), 0);
    ASSERT_EQ(current_pool(&current, 0), 0);
    EXPECT_EQ(current, default_pool());
    ASSERT_EQ(pool_create(&host, pool_props(CU_MEM_LOCATION_TYPE_HOST, 0)), 0);
    EXPECT_EQ(set_current_pool(0, host), 1);
    EXPECT_EQ(set_current_pool(0, nullptr), 1);
    EXPECT_EQ(set_current_pool(7, host), 101);
    // The newer calls name a place.
    CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, 0};
    using Get = int(CUmemoryPool*, CUmemLocation*, int);
    ASSERT_EQ(cuda<Get>("cuMemGetDefaultMemPool")(&current, &here, 1), 0);
    EXPECT_EQ(current, default_pool());
    ASSERT_EQ(pool_create(&pool), 0);
    auto* set = cuda<int(CUmemLocation*, int, CUmemoryPool)>("cuMemSetMemPool");
    ASSERT_EQ(set(&here, 1, pool), 0);
    ASSERT_EQ(cuda<Get>("cuMemGetMemPool")(&current, &here, 1), 0);
    EXPECT_EQ(current, pool);
    CUmemLocation there{CU_MEM_LOCATION_TYPE_HOST, 0};
    ASSERT_EQ(cuda<Get>("cuMemGetDefaultMemPool")(&current, &there, 1), 0);
    EXPECT_NE(current, nullptr);
    EXPECT_NE(current, default_pool());
    EXPECT_EQ(set(&there, 1, pool), 1);
    ASSERT_EQ(set(&there, 1, host), 0);
    ASSERT_EQ(cuda<Get>("cuMemGetMemPool")(&current, &there, 1), 0);
    EXPECT_EQ(current, host);
  });
}

TEST(SimPoolLife, LargestSize) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUstream stream = stream_create();
    CUmemoryPool pool = nullptr;
    CUmemPoolProps props = pool_props();
    props.maxSize = 50 * kMiB;
    ASSERT_EQ(pool_create(&pool, props), 0);
    Pointer a = 0, b = 77;
    ASSERT_EQ(pool_alloc(&a, 30 * kMiB, pool, stream), 0);
    ASSERT_EQ(pool_alloc(&b, 15 * kMiB, pool, stream), 0);
    EXPECT_EQ(reserved(pool), 48u);  // no room for 32, so what is needed, rounded up
    b = 77;
    EXPECT_EQ(pool_alloc(&b, 4 * kMiB, pool, stream), 2);
    EXPECT_EQ(b, 77u);
    EXPECT_EQ(mib(node), kContext + 48);
    props.maxSize = 0;
    props.location.id = 3;
    EXPECT_EQ(pool_create(&pool, props), 101);
    props = pool_props();
    props.allocType = 0;
    EXPECT_EQ(pool_create(&pool, props), 1);
  });
}

TEST(SimPoolLife, FullDevice) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUmemoryPool pool = default_pool();
    const CUstream stream = stream_create();
    Pointer most = 0, a = 0, b = 77;
    ASSERT_EQ(cu_alloc(&most, (960 - 40) * kMiB), 0);
    ASSERT_EQ(alloc_async(&a, 11 * kMiB, stream), 0);
    EXPECT_EQ(reserved(pool), 32u);
    EXPECT_EQ(alloc_async(&b, 22 * kMiB, stream), 2);  // 8 are left, and it takes 32 or nothing
    EXPECT_EQ(alloc_async(&b, UINT64_MAX - 100, stream), 2);
    EXPECT_EQ(alloc_async(&b, 2048 * kMiB, stream), 2);
    EXPECT_EQ(b, 77u);
    EXPECT_EQ(mib(node), 1024u - 8);
    EXPECT_EQ(used_bytes(pool), 11 * kMiB);
    ASSERT_EQ(alloc_async(&b, 21 * kMiB, stream), 0);  // what is left of the 32
    EXPECT_EQ(mib(node), 1024u - 8);
    ASSERT_EQ(cu_free(most), 0);
    ASSERT_EQ(free_async(a, stream), 0);
    ASSERT_EQ(free_async(b, stream), 0);
    ASSERT_EQ(context_sync(), 0);
    EXPECT_EQ(mib(node), kContext);
  });
}

TEST(SimPoolLife, HostPoolsTakeNoDeviceMemory) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUstream stream = stream_create();
    for (const int type : {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA}) {
      CUmemoryPool pool = nullptr;
      ASSERT_EQ(pool_create(&pool, pool_props(type, 0)), 0);
      Pointer a = 0;
      ASSERT_EQ(pool_alloc(&a, 100 * kMiB, pool, stream), 0);
      EXPECT_EQ(mib(node), kContext);
      EXPECT_EQ(reserved(pool), 128u);
      *reinterpret_cast<volatile char*>(a + 50 * kMiB) = 1;  // it is the host's
      ASSERT_EQ(free_async(a, stream), 0);
      ASSERT_EQ(stream_sync(stream), 0);
      EXPECT_EQ(reserved(pool), 0u);
      ASSERT_EQ(pool_destroy(pool), 0);
    }
    CUmemPoolProps props = pool_props(CU_MEM_LOCATION_TYPE_HOST, 0);
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(pool_create(&pool, props), 1);
  });
}

using GetPool = int(CUmemoryPool*, CUmemLocation*, int);

TEST(SimPoolLife, ManagedMemoryCountsWhereItsPoolPrefersOrWasMade) {
  TestNode node("2xa100-40gb");
  in_child([&] {
    ASSERT_EQ(cu_start(0), 0);
    const uint64_t before[] = {node->used(0), node->used(1)};
    const CUstream stream = stream_create();
    const CUmemLocation on_second = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
    for (const CUmemLocation where :
         {on_second, {CU_MEM_LOCATION_TYPE_HOST, 0}, {CU_MEM_LOCATION_TYPE_NONE, 0}}) {
      SCOPED_TRACE(where.type);
      const int counts = where.type == CU_MEM_LOCATION_TYPE_DEVICE ? 1 : 0;
      CUmemPoolProps props = pool_props(where.type, where.id);
      props.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
      CUmemoryPool pool = nullptr, of_place = nullptr;
      ASSERT_EQ(pool_create(&pool, props), 0);
      CUmemLocation place = where;
      ASSERT_EQ(cuda<GetPool>("cuMemGetDefaultMemPool")(&of_place, &place, 2), 0);
      EXPECT_NE(of_place, pool);
      for (const CUmemoryPool each : {pool, of_place}) {
        Pointer a = 0;
        ASSERT_EQ(pool_alloc(&a, 96 * kMiB, each, stream), 0);
        EXPECT_EQ(node->used(counts), before[counts] + 96 * kMiB);
        EXPECT_EQ(node->used(1 - counts), before[1 - counts]);
        ASSERT_EQ(free_async(a, stream), 0);
        ASSERT_EQ(stream_sync(stream), 0);
      }
      auto* set = cuda<int(CUmemLocation*, int, CUmemoryPool)>("cuMemSetMemPool");
      ASSERT_EQ(set(&place, 2, pool), 0);
      EXPECT_EQ(set(&place, 1, pool), 1);
      ASSERT_EQ(cuda<GetPool>("cuMemGetMemPool")(&of_place, &place, 2), 0);
      EXPECT_EQ(of_place, pool);
      props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
      EXPECT_EQ(pool_create(&pool, props), 1);
    }
    CUmemoryPool pool = nullptr;
    CUmemLocation nowhere = {CU_MEM_LOCATION_TYPE_NONE, 0};
    EXPECT_EQ(cuda<GetPool>("cuMemGetMemPool")(&pool, &nowhere, 1), 1);
    EXPECT_EQ(cuda<GetPool>("cuMemGetMemPool")(&pool, &nowhere, 3), 1);
  });
}

TEST(SimPoolLife, LocalityDomainsArePartsOfTheirDevice) {
  TestNode node("2xa100-40gb");
  in_child([&] {
    ASSERT_EQ(cu_start(0), 0);
    const uint64_t before[] = {node->used(0), node->used(1)};
    const CUstream stream = stream_create();
    CUmemLocation domain = {CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN, 1 | 1 << 8};
    CUmemoryPool pool = nullptr;
    ASSERT_EQ(cuda<GetPool>("cuMemGetDefaultMemPool")(&pool, &domain, 1), 0);
    Pointer a = 0;
    ASSERT_EQ(pool_alloc(&a, 96 * kMiB, pool, stream), 0);
    EXPECT_EQ(node->used(0), before[0]);
    EXPECT_EQ(node->used(1), before[1] + 96 * kMiB);
    EXPECT_EQ(cuda<GetPool>("cuMemGetDefaultMemPool")(&pool, &domain, 2), 1);
    domain.id = 1 | 2 << 8;
    EXPECT_EQ(cuda<GetPool>("cuMemGetDefaultMemPool")(&pool, &domain, 1), 1);
    domain.id = 2;
    EXPECT_EQ(cuda<GetPool>("cuMemGetDefaultMemPool")(&pool, &domain, 1), 101);
  });
}

TEST(SimPoolLife, AnotherDevice) {
  TestNode node("2xa100-40gb");
  in_child([&] {
    ASSERT_EQ(cu_start(0), 0);
    const uint64_t before[] = {node->used(0), node->used(1)};
    const CUstream stream = stream_create();
    CUmemoryPool pool = nullptr;
    ASSERT_EQ(pool_create(&pool, pool_props(CU_MEM_LOCATION_TYPE_DEVICE, 1)), 0);
    Pointer a = 0;
    ASSERT_EQ(pool_alloc(&a, kMiB, pool, stream), 0);
    EXPECT_EQ(node->used(0), before[0]);
    EXPECT_EQ(node->used(1), before[1] + 32 * kMiB);
    int ordinal = -1;
    EXPECT_EQ((cuda<int(void*, int, Pointer)>("cuPointerGetAttribute")(&ordinal, 9, a)), 0);
    EXPECT_EQ(ordinal, 1);
    EXPECT_EQ(set_current_pool(0, pool), 1);
    ASSERT_EQ(set_current_pool(1, pool), 0);
    // Only its own device has access, until others are given it.
    auto* fill = cuda<int(Pointer, unsigned char, size_t)>("cuMemsetD8_v2");
    auto* get = cuda<int(int*, CUmemoryPool, CUmemLocation*)>("cuMemPoolGetAccess");
    auto* set = cuda<int(CUmemoryPool, const CUmemAccessDesc*, size_t)>("cuMemPoolSetAccess");
    CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, 3};
    int flags = -1;
    EXPECT_EQ(get(&flags, pool, &access.location), 0);
    EXPECT_EQ(flags, 0);
    EXPECT_EQ(fill(a, 0, 10), 1);
    ASSERT_EQ(set(pool, &access, 1), 0);
    EXPECT_EQ(get(&flags, pool, &access.location), 0);
    EXPECT_EQ(flags, 3);
    EXPECT_EQ(fill(a, 0, 10), 0);
    access.location.id = 1;
    EXPECT_EQ(get(&flags, pool, &access.location), 0);
    EXPECT_EQ(flags, 3);
    access.flags = 0;
    EXPECT_EQ(set(pool, &access, 1), 1);  // not taken from its own
    access.location.id = 9;
    EXPECT_EQ(set(pool, &access, 1), 101);
    ASSERT_EQ(free_async(a, stream), 0);
    ASSERT_EQ(stream_sync(stream), 0);
    EXPECT_EQ(node->used(1), before[1]);
  });
}

TEST(SimPoolLife, OutlivesThePrimaryContext) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUstream stream = stream_create();
    CUmemoryPool pool = nullptr, gone = nullptr;
    Pointer a = 0, b = 0, c = 0, d = 0;
    ASSERT_EQ(pool_create(&pool), 0);
    ASSERT_EQ(pool_create(&gone), 0);
    ASSERT_EQ(pool_alloc(&a, kMiB, pool, stream), 0);
    ASSERT_EQ(pool_alloc(&b, kMiB, gone, stream), 0);
    ASSERT_EQ(alloc_async(&c, kMiB, stream), 0);
    ASSERT_EQ(cu_alloc(&d, 5 * kMiB), 0);
    ASSERT_EQ(free_async(c, stream), 0);
    ASSERT_EQ(free_async(d, stream), 0);
    ASSERT_EQ(pool_destroy(gone), 0);
    EXPECT_EQ(mib(node), kContext + 96 + 6);
    ASSERT_EQ(cuda<int(int)>("cuDevicePrimaryCtxReset_v2")(0), 0);
    EXPECT_EQ(mib(node), 64u);  // what lives, and not what was freed
    ASSERT_EQ(cu_start(), 0);
    EXPECT_EQ(alloc_async(&c, kMiB, stream), 400);  // the stream was the old context's
    const CUstream fresh = stream_create();
    EXPECT_EQ(reserved(pool), 32u);
    EXPECT_EQ(cu_free(a), 0);
    EXPECT_EQ(free_async(b, fresh), 0);
    EXPECT_EQ(mib(node), kContext + 64);
    ASSERT_EQ(stream_sync(fresh), 0);
    EXPECT_EQ(mib(node), kContext);
    std::string difference;
    EXPECT_TRUE(node->consistent(&difference)) << difference;
  });
}

TEST(SimPoolLife, AContextOfTheProgramsOwnFinishesItsWork) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    CUcontext own = nullptr;
    ASSERT_EQ((cuda<int(CUcontext*, unsigned, int)>("cuCtxCreate_v2")(&own, 0, 0)), 0);
    const CUstream stream = stream_create();
    Pointer a = 0, b = 0, c = 0;
    ASSERT_EQ(alloc_async(&a, kMiB, stream), 0);
    ASSERT_EQ(alloc_async(&b, 64 * kMiB, stream), 0);
    ASSERT_EQ(cu_alloc(&c, 5 * kMiB), 0);
    ASSERT_EQ(free_async(b, stream), 0);
    ASSERT_EQ(free_async(c, stream), 0);
    EXPECT_EQ(mib(node), 2 * kContext + 32 + 64 + 6);
    ASSERT_EQ(cuda<int(CUcontext)>("cuCtxDestroy_v2")(own), 0);
    // A pool belongs to the device: what is live in it stays.
    EXPECT_EQ(mib(node), kContext + 32);
    EXPECT_EQ(cu_free(a), 0);
    ASSERT_EQ(context_sync(), 0);
    EXPECT_EQ(mib(node), kContext);
  });
}

TEST(SimPoolLife, OrderedFailures) {
  TestNode node;
  setenv("FRACGPU_SIM_FAIL", "cuMemAllocAsync:2=2,cuMemPoolCreate:1=999", 1);
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(pool_create(&pool), 999);
    Pointer a = 0;
    EXPECT_EQ(alloc_async(&a, 512, nullptr), 0);
    EXPECT_EQ(alloc_async(&a, 33 * kMiB, nullptr), 2);
    EXPECT_EQ(mib(node), kContext + 32);
    in_child([] {
      Pointer b = 0;
      EXPECT_EQ(alloc_async(&b, 512, nullptr), 3);  // the driver does not survive a fork
    });
  });
  unsetenv("FRACGPU_SIM_FAIL");
}

TEST(SimPoolLife, ManyThreads) {
  TestNode node("h100-80gb");
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    CUcontext context = nullptr;
    ASSERT_EQ(cuda<int(CUcontext*)>("cuCtxGetCurrent")(&context), 0);
    std::vector<std::thread> threads;
    for (unsigned seed = 1; seed <= 4; ++seed) {
      threads.emplace_back([seed, context] {
        cuda<int(CUcontext)>("cuCtxSetCurrent")(context);
        const CUstream stream = stream_create();
        std::vector<Pointer> held;
        unsigned random = seed;
        for (int i = 0; i < 3000; ++i) {
          random = random * 1664525 + 1013904223;
          Pointer a = 0;
          if (random >> 31 != 0 || held.empty()) {
            ASSERT_EQ(alloc_async(&a, 1 + (random >> 8) % (48 * kMiB), stream), 0);
            held.push_back(a);
          } else {
            std::swap(held[random / 512 % held.size()], held.back());
            ASSERT_EQ(free_async(held.back(), stream), 0);
            held.pop_back();
          }
          if (held.size() > 100) {
            ASSERT_EQ(free_async(held.front(), stream), 0);
            held.erase(held.begin());
          }
          if (i % 100 == 0) {
            ASSERT_EQ(stream_sync(stream), 0);
          }
        }
        for (const Pointer a : held) ASSERT_EQ(free_async(a, stream), 0);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(used_bytes(default_pool()), 0u);
    EXPECT_EQ(node->used_by_pid(0, getpid()) - node->context_bytes(0, getpid()),
              reserved(default_pool()) * kMiB);
    ASSERT_EQ(context_sync(), 0);
    EXPECT_EQ(reserved(default_pool()), 0u);
  });
}

TEST(SimPoolLife, KilledInTheMiddle) {
  sim::NodeOptions options;
  options.context_mib = 2;
  TestNode node("tiny", options);
  kill_in_the_middle(node, 30, [](Child& parent) {
    ASSERT_EQ(cu_start(), 0);
    const CUstream stream = stream_create();
    for (int turn = 0;; ++turn) {
      if (turn == 1) parent.say(0);
      Pointer a = 0, b = 0;
      alloc_async(&a, kMiB, stream);
      alloc_async(&b, 50 * kMiB, stream);
      free_async(a, stream);
      free_async(b, stream);
      stream_sync(stream);
    }
  });
  EXPECT_EQ(node->tenant_high_water(0, "none"), 98 * kMiB);
}

}  // namespace
