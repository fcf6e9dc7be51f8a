// Tests of arrays: what each form takes, whose chunks small ones share, and how they end.
// The layouts are counted by hand here; the physical bytes are read from the node by the observer.
#include <vector>

#include "sim/test/array_calls.h"

using namespace simtest;

namespace {

uint64_t mib(TestNode& node) {
  return node->used(0) / kMiB;
}

struct Counted {
  Form form;
  uint64_t bytes;
};

const Counted kCounted[] = {
    {{2048, 0, 0, 0x20, 1, 0}, 8192 * 8},
    {{1024, 1024, 0, 0x20, 4, 0}, 16 << 20},
    {{1000, 1000, 0, 0x01, 1, 0}, 1 << 20},  // 1024 x 1000
    {{1001, 1001, 0, 0x01, 1, 0}, 1 << 20},  // 1024 x 1008
    {{100, 100, 100, 0x10, 2, 0}, 72 << 16},
    {{512, 512, 10, 0x01, 4, 0x01}, 10 << 20},
    {{1000, 0, 7, 0x20, 1, 0x01}, 4 << 16},
    {{256, 256, 6, 0x01, 4, 0x04}, 1024 * 256 * 6},
    {{64, 64, 12, 0x01, 4, 0x05}, 256 * 64 * 12},
    {{1920, 1080, 0, 0xb0, 3, 0}, 48 << 16},  // NV12: 1920 x 1080 and 1920 x 544
    {{1024, 1024, 0, 0x91, 4, 0}, 2048 * 256},
    {{1024, 1024, 0, 0x9d, 4, 0}, 4096 * 256},
    {{10, 10, 0, 0x97, 1, 0}, 1 << 16},
    {{1920, 1080, 0, 0x9f, 3, 0}, 96 << 16},
    {{1920, 1080, 0, 0xa5, 2, 0}, 64 << 16},
    {{640, 480, 0, 0xb2, 3, 0}, 15 << 16},
    {{100, 100, 0, 0x50, 4, 0}, 1 << 16},
    {{1024, 1024, 0, 0xc5, 4, 0}, 8 << 20},
};

TEST(SimArray, FormsTakeWhatIsCounted) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    for (const Counted& counted : kCounted) {
      Form form = counted.form;
      SCOPED_TRACE(testing::Message() << std::hex << form.Format << std::dec << " " << form.Width
                                      << "x" << form.Height << "x" << form.Depth);
      CUarray array = nullptr;
      ASSERT_EQ(array_create(&array, form), 0);
      const uint64_t pages = (counted.bytes + 2 * kMiB - 1) / (2 * kMiB);
      EXPECT_EQ(mib(node), 64 + 2 * pages);
      CUDA_ARRAY_MEMORY_REQUIREMENTS need = {};
      EXPECT_EQ(array_requirements(&need, array), 1);
      EXPECT_EQ(array_destroy(array), 0);
      EXPECT_EQ(mib(node), 64u);
      // A deferred one takes nothing and says what a plain one takes.
      form.Flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
      ASSERT_EQ(array_create(&array, form), 0);
      EXPECT_EQ(mib(node), 64u);
      EXPECT_EQ(array_requirements(&need, array), 0);
      EXPECT_EQ(need.size, counted.bytes);
      EXPECT_EQ(array_destroy(array), 0);
    }
  });
}

TEST(SimArray, EveryFormatIsKnown) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    // The codes that the vendor's header of 13.0 names, as runs.
    constexpr int kRuns[][2] = {{0x01, 0x03}, {0x08, 0x0a}, {0x10, 0x10},
                                {0x20, 0x20}, {0x50, 0x50}, {0x91, 0x9f},
                                {0xa1, 0xa9}, {0xb0, 0xb5}, {0xc0, 0xcb}};
    for (int code = 0; code < 0x100; ++code) {
      bool known = false;
      for (const auto& run : kRuns) known = known || (code >= run[0] && code <= run[1]);
      CUarray array = nullptr;
      EXPECT_EQ(array_create(&array, {64, 64, 0, code, 1, 0}), known ? 0 : 1) << code;
      if (known) {
        EXPECT_EQ(array_destroy(array), 0);
      }
    }
    EXPECT_EQ(mib(node), 64u);
  });
}

TEST(SimArray, SmallOnesShareChunksOfTheirOwn) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    unsigned long long linear = 0;
    ASSERT_EQ(cu_alloc(&linear, 4096), 0);
    EXPECT_EQ(mib(node), 66u);
    const Form form = {256, 256, 0, 0x01, 4, 0};  // 256 KiB
    std::vector<CUarray> arrays(8);
    for (CUarray& array : arrays) ASSERT_EQ(array_create(&array, form), 0);
    EXPECT_EQ(mib(node), 68u);  // all eight beside each other, not in the linear block's chunk
    EXPECT_EQ(array_destroy(arrays[7]), 0);
    EXPECT_EQ(mib(node), 68u);
    EXPECT_EQ(cu_free(linear), 0);
    EXPECT_EQ(mib(node), 66u);
    for (int i = 0; i < 7; ++i) EXPECT_EQ(array_destroy(arrays[static_cast<size_t>(i)]), 0);
    EXPECT_EQ(mib(node), 64u);
    EXPECT_EQ(array_destroy(arrays[0]), 400);
  });
}

TEST(SimArray, MipmapsTakeTheSumOfTheirLevels) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    Form form = {1024, 1024, 0, 0x01, 1, CUDA_ARRAY3D_DEFERRED_MAPPING};
    auto* ask = cuda<int(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUmipmappedArray, int)>(
        "cuMipmappedArrayGetMemoryRequirements");
    CUDA_ARRAY_MEMORY_REQUIREMENTS need = {};
    CUmipmappedArray mipmap = nullptr;
    ASSERT_EQ(mipmap_create(&mipmap, form, 3), 0);
    EXPECT_EQ(ask(&need, mipmap, 0), 0);
    EXPECT_EQ(need.size, 21u << 16);
    EXPECT_EQ(ask(&need, mipmap, 1), 101);
    EXPECT_EQ(mipmap_destroy(mipmap), 0);
    ASSERT_EQ(mipmap_create(&mipmap, form, 40), 0);  // as many as there can be: 11
    EXPECT_EQ(ask(&need, mipmap, 0), 0);
    EXPECT_EQ(need.size, 22u << 16);
    EXPECT_EQ(mipmap_destroy(mipmap), 0);
    form.Flags = 0;
    ASSERT_EQ(mipmap_create(&mipmap, form, 40), 0);
    EXPECT_EQ(mib(node), 66u);
    CUarray level = nullptr, same = nullptr;
    EXPECT_EQ(mipmap_level(&level, mipmap, 11), 1);
    ASSERT_EQ(mipmap_level(&level, mipmap, 2), 0);
    ASSERT_EQ(mipmap_level(&same, mipmap, 2), 0);
    EXPECT_EQ(level, same);
    Form about = {};
    auto* describe = cuda<int(Form*, CUarray)>("cuArray3DGetDescriptor_v2");
    EXPECT_EQ(describe(&about, level), 0);
    EXPECT_EQ(about.Width, 256u);
    EXPECT_EQ(about.Height, 256u);
    EXPECT_EQ(about.Depth, 0u);
    EXPECT_EQ(array_destroy(level), 400);
    EXPECT_EQ(mib(node), 66u);
    EXPECT_EQ(mipmap_destroy(mipmap), 0);
    EXPECT_EQ(mib(node), 64u);
    EXPECT_EQ(describe(&about, level), 400);
    EXPECT_EQ(mipmap_destroy(mipmap), 400);
  });
}

TEST(SimArray, OldCallsAndDescriptions) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    CUarray array = nullptr;
    const CUDA_ARRAY_DESCRIPTOR_v1 flat = {1024, 2048, 0x20, 1};
    ASSERT_EQ(
        (cuda<int(CUarray*, const CUDA_ARRAY_DESCRIPTOR_v1*)>("cuArrayCreate")(&array, &flat)), 0);
    EXPECT_EQ(mib(node), 72u);
    Form about = {};
    EXPECT_EQ((cuda<int(Form*, CUarray)>("cuArray3DGetDescriptor_v2")(&about, array)), 0);
    EXPECT_EQ(about.Width, 1024u);
    EXPECT_EQ(about.Height, 2048u);
    EXPECT_EQ(about.NumChannels, 1u);
    EXPECT_EQ(array_destroy(array), 0);
    const CUDA_ARRAY3D_DESCRIPTOR_v1 deep = {256, 256, 16, 0x0a, 2, 0};
    ASSERT_EQ(
        (cuda<int(CUarray*, const CUDA_ARRAY3D_DESCRIPTOR_v1*)>("cuArray3DCreate")(&array, &deep)),
        0);
    EXPECT_EQ(mib(node), 72u);
    CUDA_ARRAY3D_DESCRIPTOR_v1 old = {};
    EXPECT_EQ(
        (cuda<int(CUDA_ARRAY3D_DESCRIPTOR_v1*, CUarray)>("cuArray3DGetDescriptor")(&old, array)),
        0);
    EXPECT_EQ(old.Depth, 16u);
    EXPECT_EQ(array_destroy(array), 0);
    const CUDA_ARRAY_DESCRIPTOR two = {1024, 2048, 0x20, 1};
    ASSERT_EQ((cuda<int(CUarray*, const CUDA_ARRAY_DESCRIPTOR*)>("cuArrayCreate_v2")(&array, &two)),
              0);
    EXPECT_EQ(mib(node), 72u);
  });
}

TEST(SimArray, ContextTakesItsArraysAlong) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    CUarray kept = nullptr, large = nullptr, small = nullptr;
    CUmipmappedArray mipmap = nullptr;
    const Form form = {1024, 1024, 0, 0x20, 1, 0};
    ASSERT_EQ(array_create(&kept, form), 0);
    void* context = nullptr;
    ASSERT_EQ((cuda<int(void**, unsigned, int)>("cuCtxCreate_v2")(&context, 0, 0)), 0);
    ASSERT_EQ(array_create(&large, form), 0);
    ASSERT_EQ(array_create(&small, {16, 16, 0, 0x20, 1, 0}), 0);
    ASSERT_EQ(mipmap_create(&mipmap, form, 2), 0);
    EXPECT_EQ(mib(node), 64u + 4 + 64 + 4 + 2 + 6);
    ASSERT_EQ(cuda<int(void*)>("cuCtxDestroy_v2")(context), 0);
    EXPECT_EQ(mib(node), 68u);
    ASSERT_EQ(cu_start(), 0);
    EXPECT_EQ(array_destroy(large), 400);
    EXPECT_EQ(array_destroy(small), 400);
    EXPECT_EQ(mipmap_destroy(mipmap), 400);
    EXPECT_EQ(mib(node), 68u);
    EXPECT_EQ(array_destroy(kept), 0);
    EXPECT_EQ(mib(node), 64u);
  });
}

TEST(SimArray, Errors) {
  TestNode node;
  setenv("FRACGPU_SIM_FAIL", "cuArray3DCreate_v2:2=2,cuArrayDestroy:1=999", 1);
  in_child([&] {
    CUarray array = nullptr;
    const Form form = {1024, 1024, 0, 0x20, 1, 0};
    EXPECT_EQ(array_create(&array, form), 3);
    ASSERT_EQ(cu_start(), 0);
    EXPECT_EQ(array_create(&array, form), 2);  // ordered
    for (const Form& bad :
         {Form{0, 1, 0, 0x20, 1, 0}, Form{1, 1, 0, 0x21, 1, 0}, Form{1, 1, 0, 0x20, 3, 0},
          Form{1, 1, 0, 0x20, 1, 0x200}, Form{8, 0, 8, 0x20, 1, 0}, Form{8, 8, 0, 0x20, 1, 0x01},
          Form{8, 9, 6, 0x20, 1, 0x04}, Form{8, 8, 12, 0x20, 1, 0x04}, Form{8, 8, 9, 0x20, 1, 0x05},
          Form{200000, 8, 0, 0x20, 1, 0}, Form{8, 8, 0, 0x20, 1, 0xc0},
          Form{8, 8, 0, 0xb0, 3, 0x40}}) {
      EXPECT_EQ(array_create(&array, bad), 1) << bad.Format << " " << bad.Flags;
    }
    EXPECT_EQ(array_create(&array, {16384, 16384, 0, 0x20, 4, 0}), 2);  // 4 GiB
    EXPECT_EQ(array_create(nullptr, form), 1);
    EXPECT_EQ(array, nullptr);
    EXPECT_EQ(mib(node), 64u);
    ASSERT_EQ(array_create(&array, form), 0);
    EXPECT_EQ(array_destroy(array), 999);
    EXPECT_EQ(mib(node), 68u);
    EXPECT_EQ(array_destroy(array), 0);
    EXPECT_EQ(array_destroy(nullptr), 400);
  });
  unsetenv("FRACGPU_SIM_FAIL");
}

}  // namespace
