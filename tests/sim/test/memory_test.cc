// Tests of the simulated driver's physics: pages, chunks, contexts, errors, address reuse.
// Every expectation about bytes is read from the node by the observer, not from the driver under
// test. The last test measures the cost of a call; it prints and asserts nothing, because machines
// differ.
#include <chrono>
#include <cstdio>
#include <vector>

#include "sim/test/support.h"

using namespace simtest;

namespace {

using Pointer = unsigned long long;

uint64_t mib_in_use(TestNode& node) {
  return node->used(0) / kMiB;
}

TEST(SimMemory, ContextCostsOnceAndAgainForEach) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    EXPECT_EQ(mib_in_use(node), 64u);
    ASSERT_EQ(cu_start(), 0);  // a second retain is free
    EXPECT_EQ(mib_in_use(node), 64u);
    void* context = nullptr;
    ASSERT_EQ((cuda<int(void**, unsigned, int)>("cuCtxCreate_v2")(&context, 0, 0)), 0);
    EXPECT_EQ(mib_in_use(node), 128u);
    EXPECT_EQ(node->context_bytes(0, getpid()), 128 * kMiB);
    Pointer address;
    ASSERT_EQ(cu_alloc(&address, 4 * kMiB), 0);
    EXPECT_EQ(mib_in_use(node), 132u);
    ASSERT_EQ(cuda<int(void*)>("cuCtxDestroy_v2")(context), 0);  // takes its memory along
    EXPECT_EQ(mib_in_use(node), 64u);
    auto* release = cuda<int(int)>("cuDevicePrimaryCtxRelease_v2");
    EXPECT_EQ(release(0), 0);
    EXPECT_EQ(mib_in_use(node), 64u);
    EXPECT_EQ(release(0), 0);
    EXPECT_EQ(mib_in_use(node), 0u);
    EXPECT_EQ(release(0), 201);
    EXPECT_EQ(cu_alloc(&address, 512), 709);  // the context is still current, and dead
  });
  EXPECT_EQ(node->used(0), 0u);
}

TEST(SimMemory, LargeTakesPagesSmallShareChunks) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    Pointer large, odd, first, second, third;
    ASSERT_EQ(cu_alloc(&large, 2 * kMiB), 0);
    EXPECT_EQ(large % (2 * kMiB), 0u);
    EXPECT_EQ(mib_in_use(node), 66u);
    ASSERT_EQ(cu_alloc(&odd, 2 * kMiB + 1), 0);
    EXPECT_EQ(mib_in_use(node), 70u);
    ASSERT_EQ(cu_alloc(&first, 1), 0);
    ASSERT_EQ(cu_alloc(&second, 513), 0);
    EXPECT_EQ(mib_in_use(node), 72u);
    EXPECT_EQ(first % 512, 0u);
    EXPECT_EQ(second, first + 512);
    ASSERT_EQ(cu_alloc(&third, 2 * kMiB - 2000), 0);  // fits beside them
    EXPECT_EQ(mib_in_use(node), 72u);
    Pointer base = 0;
    size_t size = 0;
    auto* range = cuda<int(Pointer*, size_t*, Pointer)>("cuMemGetAddressRange_v2");
    EXPECT_EQ(range(&base, &size, second + 100), 0);
    EXPECT_EQ(base, second);
    EXPECT_EQ(size, 513u);
    EXPECT_EQ(range(&base, &size, odd + 2 * kMiB), 0);
    EXPECT_EQ(base, odd);
    EXPECT_EQ(range(&base, &size, odd + 2 * kMiB + 1), 500);
    EXPECT_EQ(cu_free(second), 0);
    EXPECT_EQ(cu_free(first), 0);
    EXPECT_EQ(mib_in_use(node), 72u);
    EXPECT_EQ(cu_free(third), 0);  // the last one out takes the chunk along
    EXPECT_EQ(mib_in_use(node), 70u);
    EXPECT_EQ(cu_free(large), 0);
    EXPECT_EQ(cu_free(odd), 0);
    EXPECT_EQ(mib_in_use(node), 64u);
  });
}

TEST(SimMemory, ErrorsAndReuse) {
  TestNode node;
  in_child([&] {
    Pointer address = 7, again = 0;
    EXPECT_EQ(cu_alloc(&address, 512), 3);
    ASSERT_EQ(cuda<int(unsigned)>("cuInit")(0), 0);
    EXPECT_EQ(cu_alloc(&address, 512), 201);
    ASSERT_EQ(cu_start(), 0);
    EXPECT_EQ(cu_alloc(&address, 0), 1);
    EXPECT_EQ(cu_alloc(nullptr, 512), 1);
    EXPECT_EQ(cu_alloc(&address, 2048 * kMiB), 2);
    EXPECT_EQ(cu_alloc(&address, SIZE_MAX), 2);
    EXPECT_EQ(address, 7u);
    EXPECT_EQ(cu_free(0x1234), 1);
    for (const size_t bytes : {size_t{512}, size_t{100000}, size_t{4 * kMiB}}) {
      ASSERT_EQ(cu_alloc(&address, bytes), 0);
      EXPECT_EQ(cu_free(address + 256), 1);
      EXPECT_EQ(cu_free(address), 0);
      EXPECT_EQ(cu_free(address), 1);
      ASSERT_EQ(cu_alloc(&again, bytes), 0);
      EXPECT_EQ(again, address) << bytes;
      EXPECT_EQ(cu_free(again), 0);
    }
    unsigned low = 0;
    ASSERT_EQ((cuda<int(unsigned*, unsigned)>("cuMemAlloc")(&low, 1000)), 0);
    EXPECT_EQ(cuda<int(unsigned)>("cuMemFree")(low), 0);
    EXPECT_EQ(mib_in_use(node), 64u);
  });
}

TEST(SimMemory, FillsExactlyAndCopiesAreChecked) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    Pointer address = 0;
    std::vector<Pointer> all;
    while (cu_alloc(&address, 2 * kMiB) == 0) all.push_back(address);
    EXPECT_EQ(all.size(), (1024u - 64u) / 2);
    size_t free = 1, total = 0;
    ASSERT_EQ((cuda<int(size_t*, size_t*)>("cuMemGetInfo_v2")(&free, &total)), 0);
    EXPECT_EQ(free, 0u);
    EXPECT_EQ(total, 1024 * kMiB);
    auto* set = cuda<int(Pointer, unsigned char, size_t)>("cuMemsetD8_v2");
    EXPECT_EQ(set(all[0] + kMiB, 0, kMiB), 0);
    EXPECT_EQ(set(all[0] + kMiB, 0, kMiB + 1), 1);
    ASSERT_EQ(cuda<int(int)>("cuDevicePrimaryCtxReset_v2")(0), 0);
    EXPECT_EQ(mib_in_use(node), 0u);
    EXPECT_EQ(set(all[0], 0, 1), 709);
    ASSERT_EQ(cu_start(), 0);
    EXPECT_EQ(cu_free(all[0]), 1);
  });
}

TEST(SimMemory, ForkedChildIsRefused) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    Pointer address;
    ASSERT_EQ(cu_alloc(&address, 8 * kMiB), 0);
    in_child([&] {
      EXPECT_EQ(cuda<int(unsigned)>("cuInit")(0), 3);
      EXPECT_EQ(cu_alloc(&address, 512), 3);
      EXPECT_EQ(cu_free(address), 3);
    });
    EXPECT_EQ(mib_in_use(node), 72u);
  });
  EXPECT_EQ(node->used(0), 0u);
}

TEST(SimMemory, VisibleDevices) {
  TestNode node("2xa100-40gb");
  const std::string second = node->uuid(1);
  const auto count_with = [&](const std::string& list, int expected_rc, int expected, int first) {
    in_child([&] {
      setenv("CUDA_VISIBLE_DEVICES", list.c_str(), 1);
      ASSERT_EQ(cuda<int(unsigned)>("cuInit")(0), expected_rc) << list;
      if (expected_rc != 0) return;
      int count = 0;
      ASSERT_EQ(cuda<int(int*)>("cuDeviceGetCount")(&count), 0);
      EXPECT_EQ(count, expected) << list;
      ASSERT_EQ(cu_start(0), 0);
      EXPECT_EQ(node->used(first), 414 * kMiB) << list;
    });
  };
  count_with("1", 0, 1, 1);
  count_with("1,0", 0, 2, 1);
  count_with(second, 0, 1, 1);
  count_with("0,7,1", 0, 1, 0);
  count_with("", 100, 0, 0);
  count_with("0,0", 100, 0, 0);
}

TEST(SimMemory, OrderedFailures) {
  TestNode node;
  setenv("FRACGPU_SIM_FAIL", "cuMemAlloc_v2:3=2,cuDevicePrimaryCtxRetain:1=999", 1);
  in_child([&] {
    EXPECT_EQ(cu_start(), 999);
    ASSERT_EQ(cu_start(), 0);
    Pointer address = 0;
    EXPECT_EQ(cu_alloc(&address, 4 * kMiB), 0);
    EXPECT_EQ(cu_alloc(&address, 4 * kMiB), 0);
    EXPECT_EQ(cu_alloc(&address, 4 * kMiB), 2);
    EXPECT_EQ(cu_alloc(&address, 4 * kMiB), 0);
    EXPECT_EQ(mib_in_use(node), 64u + 12u);
  });
  unsetenv("FRACGPU_SIM_FAIL");
}

TEST(SimMemory, SharingCostsTheImporterNothing) {
  TestNode node;
  struct Ticket {
    char bytes[64];
  };
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  Child owner([&](Child& parent) {
    ASSERT_EQ(cu_start(), 0);
    Pointer address = 0;
    ASSERT_EQ(cu_alloc(&address, 32 * kMiB), 0);
    Ticket ticket;
    ASSERT_EQ((cuda<int(Ticket*, Pointer)>("cuIpcGetMemHandle")(&ticket, address)), 0);
    EXPECT_EQ((cuda<int(Pointer*, Ticket, unsigned)>("cuIpcOpenMemHandle_v2")(&address, ticket, 1)),
              201);
    ASSERT_EQ(write(pipes[1], &ticket, sizeof ticket), static_cast<ssize_t>(sizeof ticket));
    parent.say(1);
    parent.hear();
  });
  owner.hear();
  in_child([&] {
    Ticket ticket;
    ASSERT_EQ(read(pipes[0], &ticket, sizeof ticket), static_cast<ssize_t>(sizeof ticket));
    ASSERT_EQ(cu_start(), 0);
    Pointer address = 0, twice = 0;
    auto* open = cuda<int(Pointer*, Ticket, unsigned)>("cuIpcOpenMemHandle_v2");
    auto* close = cuda<int(Pointer)>("cuIpcCloseMemHandle");
    ASSERT_EQ(open(&address, ticket, 1), 0);
    ASSERT_EQ(open(&twice, ticket, 1), 0);
    EXPECT_EQ(twice, address);
    EXPECT_EQ(mib_in_use(node), 64u + 32u + 64u);
    EXPECT_EQ(cu_free(address), 1);
    EXPECT_EQ(close(address), 0);
    EXPECT_EQ(close(address), 0);
    EXPECT_EQ(close(address), 1);
  });
  owner.say(1);
  EXPECT_TRUE(owner.ended());
}

double pair_ns(size_t bytes, int rounds) {
  Pointer address = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < rounds; ++i) {
    cu_alloc(&address, bytes);
    cu_free(address);
  }
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start)
             .count() /
         rounds;
}

TEST(SimMemory, CostOfCalls) {
  TestNode node("h100-80gb");
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    constexpr int kRounds = 200000;
    Pointer keep = 0, address = 0;
    ASSERT_EQ(cu_alloc(&keep, 512), 0);
    std::printf("1 live: pair 512 B %.0f ns, 64 KiB %.0f ns, 2 MiB %.0f ns, 1 GiB %.0f ns\n",
                pair_ns(512, kRounds), pair_ns(64 << 10, kRounds), pair_ns(2 * kMiB, kRounds),
                pair_ns(1024 * kMiB, kRounds));
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 1000000; ++i)
      ASSERT_EQ(cu_alloc(&address, 512 + static_cast<size_t>(i % 64) * 512), 0);
    const std::chrono::duration<double> filling = std::chrono::steady_clock::now() - start;
    std::printf(
        "1000000 live: filled in %.0f ns each; pair 512 B %.0f ns, 64 KiB %.0f ns, 2 MiB %.0f ns\n",
        filling.count() * 1e3, pair_ns(512, kRounds), pair_ns(64 << 10, kRounds),
        pair_ns(2 * kMiB, kRounds));
    auto* info = cuda<int(size_t*, size_t*)>("cuMemGetInfo_v2");
    auto* device = cuda<int(int*)>("cuCtxGetDevice");
    size_t free = 0, total = 0;
    int dev = 0;
    const auto time = [](auto&& call) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < 1000000; ++i) call();
      return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin)
                 .count() /
             1e6;
    };
    std::printf("cuMemGetInfo %.1f ns, cuCtxGetDevice %.1f ns\n",
                time([&] { info(&free, &total); }), time([&] { device(&dev); }));
  });
}

}  // namespace
