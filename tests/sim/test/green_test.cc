// Tests of green contexts: 2 MiB each on top of a primary context that they keep alive, and no
// memory of their own.
#include "sim/test/overhead_calls.h"

using namespace simtest;

namespace {

TEST(SimGreen, CostsTwoMiBAndHoldsThePrimary) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cuda<int(unsigned)>("cuInit")(0), 0);
    void *first = nullptr, *second = nullptr, *context = nullptr, *stream = nullptr;
    ASSERT_EQ(make_green(&first), 0);
    EXPECT_EQ(mib(node), 66u);
    ASSERT_EQ(make_green(&second), 0);
    EXPECT_EQ(mib(node), 68u);
    EXPECT_EQ(node->processes().at(0).device.at(0).contexts, 1u);
    ASSERT_EQ((cuda<int(void**, void*)>("cuCtxFromGreenCtx")(&context, first)), 0);
    ASSERT_EQ(cuda<int(void*)>("cuCtxSetCurrent")(context), 0);
    auto* make_stream = cuda<int(void**, void*, unsigned, int)>("cuGreenCtxStreamCreate");
    EXPECT_EQ(make_stream(&stream, first, 0, 0), 1);
    EXPECT_EQ(make_stream(&stream, first, 1, 0), 0);
    Pointer address = 0;
    ASSERT_EQ(cu_alloc(&address, 10 * kMiB), 0);
    EXPECT_EQ(mib(node), 78u);
    EXPECT_EQ(destroy_context(context), 201);
    ASSERT_EQ(end_green(first), 0);
    EXPECT_EQ(end_green(first), 400);
    EXPECT_EQ(mib(node), 76u);                // what it allocated is the primary context's
    EXPECT_EQ(cu_alloc(&address, 512), 709);  // still current, and dead
    ASSERT_EQ(end_green(second), 0);
    EXPECT_EQ(mib(node), 0u);  // nobody else retained the primary one
  });
}

TEST(SimGreen, EndsWithThePrimaryContext) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    void *green = nullptr, *context = nullptr;
    ASSERT_EQ(make_green(&green), 0);
    EXPECT_EQ(mib(node), 66u);
    auto* release = cuda<int(int)>("cuDevicePrimaryCtxRelease_v2");
    ASSERT_EQ(release(0), 0);
    EXPECT_EQ(mib(node), 66u);
    ASSERT_EQ(cuda<int(int)>("cuDevicePrimaryCtxReset_v2")(0), 0);
    EXPECT_EQ(mib(node), 0u);
    EXPECT_EQ((cuda<int(void**, void*)>("cuCtxFromGreenCtx")(&context, green)), 709);
    EXPECT_EQ(end_green(green), 0);
    ASSERT_EQ(cu_start(), 0);
    Pointer filler = 0;
    ASSERT_EQ(cu_alloc(&filler, 960 * kMiB), 0);
    EXPECT_EQ(make_green(&green), 2);
    EXPECT_EQ(mib(node), 1024u);
    ASSERT_EQ(release(0), 0);
    EXPECT_EQ(mib(node), 0u);
  });
}

TEST(SimGreen, SharesOfMultiprocessors) {
  TestNode node("h100-80gb");
  in_child([&] {
    ASSERT_EQ(cuda<int(unsigned)>("cuInit")(0), 0);
    struct Resource {
      int type;
      unsigned char internal[92];
      unsigned count, least, alignment;
      unsigned char room[36];
    } whole, parts[4], rest;
    ASSERT_EQ((cuda<int(int, Resource*, int)>("cuDeviceGetDevResource")(0, &whole, 1)), 0);
    EXPECT_EQ(whole.count, 132u);
    unsigned groups = 4;
    ASSERT_EQ((cuda<int(Resource*, unsigned*, const Resource*, Resource*, unsigned, unsigned)>(
                  "cuDevSmResourceSplitByCount")(parts, &groups, &whole, &rest, 0, 50)),
              0);
    EXPECT_EQ(groups, 2u);
    EXPECT_EQ(parts[0].count, 56u);
    EXPECT_EQ(rest.count, 20u);
  });
}

}  // namespace
