// Tests of the limits of contexts, and of ordered failures and death with everything that no
// allocation call takes. All of it is the context's: it must be counted there, come back when it is
// undone, and be gone with the context.
#include "sim/test/overhead_calls.h"

using namespace simtest;

namespace {

TEST(SimLimit, RaisedAboveTheDefaultIsPaid) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    EXPECT_EQ(get_limit(0), 1024u);
    EXPECT_EQ(get_limit(1), kMiB);
    EXPECT_EQ(get_limit(2), 8 * kMiB);
    ASSERT_EQ(set_limit(2, 8 * kMiB + 1), 0);
    EXPECT_EQ(mib(node), 66u);
    ASSERT_EQ(set_limit(2, 100 * kMiB), 0);
    EXPECT_EQ(mib(node), 64u + 92);
    EXPECT_EQ(node->context_bytes(0, getpid()), 156 * kMiB);
    ASSERT_EQ(set_limit(1, 4 * kMiB), 0);
    EXPECT_EQ(mib(node), 156u + 4);
    ASSERT_EQ(set_limit(2, 20 * kMiB), 0);
    EXPECT_EQ(mib(node), 64u + 12 + 4);
    ASSERT_EQ(set_limit(2, 1), 0);  // below the default is not less than nothing
    EXPECT_EQ(get_limit(2), 1u);
    EXPECT_EQ(mib(node), 68u);
    ASSERT_EQ(set_limit(1, kMiB), 0);
    EXPECT_EQ(mib(node), 64u);
    // Refused, and as before.
    EXPECT_EQ(set_limit(2, 2048 * kMiB), 2);
    EXPECT_EQ(set_limit(2, SIZE_MAX), 2);
    EXPECT_EQ(set_limit(0, SIZE_MAX), 2);
    EXPECT_EQ(set_limit(8, 1), 215);
    EXPECT_EQ(set_limit(-1, 1), 215);
    EXPECT_EQ(get_limit(2), 1u);
    EXPECT_EQ(mib(node), 64u);
    ASSERT_EQ(set_limit(5, 64), 0);
    EXPECT_EQ(mib(node), 64u);
    // A context takes its own along and starts again with the defaults.
    ASSERT_EQ(set_limit(2, 108 * kMiB), 0);
    void* context = make_context();
    EXPECT_EQ(get_limit(2), 8 * kMiB);
    ASSERT_EQ(set_limit(2, 28 * kMiB), 0);
    EXPECT_EQ(mib(node), 64u + 100 + 64 + 20);
    ASSERT_EQ(destroy_context(context), 0);
    EXPECT_EQ(mib(node), 164u);
    ASSERT_EQ(cuda<int(int)>("cuDevicePrimaryCtxReset_v2")(0), 0);
    EXPECT_EQ(mib(node), 0u);
    ASSERT_EQ(cu_start(), 0);
    EXPECT_EQ(get_limit(2), 8 * kMiB);
    EXPECT_EQ(mib(node), 64u);
  });
}

TEST(SimLimit, StackIsPaidForEveryResidentThread) {
  TestNode node("h100-80gb");
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const uint64_t before = node->used(0);
    int multiprocessors = 0, threads = 0;
    auto* ask = cuda<int(int*, int, int)>("cuDeviceGetAttribute");
    ASSERT_EQ(ask(&multiprocessors, 16, 0), 0);
    ASSERT_EQ(ask(&threads, 39, 0), 0);
    EXPECT_EQ(multiprocessors, 132);
    EXPECT_EQ(threads, 2048);
    ASSERT_EQ(set_limit(0, 2048), 0);
    EXPECT_EQ(node->used(0) - before, 264 * kMiB);  // 1 KiB x 132 x 2048
    ASSERT_EQ(set_limit(0, 1040), 0);
    EXPECT_EQ(node->used(0) - before, 6 * kMiB);  // 4.125 MiB
    ASSERT_EQ(set_limit(0, 512), 0);
    EXPECT_EQ(node->used(0), before);
  });
}

TEST(SimOverhead, OrderedFailuresAndDeath) {
  TestNode node;
  setenv("FRACGPU_SIM_FAIL", "cuCtxSetLimit:1=2,cuLibraryLoadData:1=999,cuGreenCtxCreate:1=2", 1);
  setenv("FRACGPU_SIM_MODULE_MIB", "4", 1);
  Child child([&](Child& parent) {
    ASSERT_EQ(cu_start(), 0);
    void *library = nullptr, *module = nullptr, *green = nullptr;
    EXPECT_EQ(set_limit(2, 28 * kMiB), 2);
    EXPECT_EQ(load_library(&library), 999);
    EXPECT_EQ(make_green(&green), 2);
    EXPECT_EQ(mib(node), 64u);
    EXPECT_EQ(set_limit(2, 28 * kMiB), 0);
    EXPECT_EQ(load_library(&library), 0);
    EXPECT_EQ(get_module(&module, library), 0);
    EXPECT_EQ(make_green(&green), 0);
    parent.say(testing::Test::HasFailure() ? 1 : 0);
    parent.hear();
  });
  EXPECT_EQ(child.hear(), 0u);
  EXPECT_EQ(mib(node), 64u + 20 + 4 + 2);
  child.kill();
  EXPECT_EQ(mib(node), 0u);
  EXPECT_EQ(node->tenant_high_water(0, "none"), 90 * kMiB);
  unsetenv("FRACGPU_SIM_FAIL");
  unsetenv("FRACGPU_SIM_MODULE_MIB");
}

}  // namespace
