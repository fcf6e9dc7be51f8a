// Tests of sparse and deferred arrays: they take nothing, what is mapped to them stays, and it goes
// when it is unmapped, replaced, or its array or context ends.
#include <vector>

#include "sim/test/array_calls.h"
#include "sim/test/vmm_calls.h"

using namespace simtest;

namespace {

uint64_t mib(TestNode& node) {
  return node->used(0) / kMiB;
}

int map_tiles(const std::vector<CUarrayMapInfo>& list, bool per_thread = false) {
  return cuda<int(const CUarrayMapInfo*, unsigned, void*)>(per_thread ? "cuMemMapArrayAsync_ptsz"
                                                                      : "cuMemMapArrayAsync")(
      list.data(), static_cast<unsigned>(list.size()), nullptr);
}

CUarrayMapInfo part(CUarray array, Handle memory, unsigned x, unsigned y, unsigned width,
                    unsigned height) {
  CUarrayMapInfo info = {};
  info.resource.array = array;
  info.subresource.sparseLevel = {0, 0, x, y, 0, width, height, 1};
  info.memOperationType = memory != 0 ? 1 : 2;
  info.memHandle.memHandle = memory;
  info.deviceBitMask = 1;
  return info;
}

constexpr Form kForm = {1024, 1024, 0, 0x20, 1, CUDA_ARRAY3D_SPARSE};  // tiles of 128 x 128

TEST(SimSparse, MappedTilesKeepTheMemory) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    CUarray array = nullptr;
    ASSERT_EQ(array_create(&array, kForm), 0);
    EXPECT_EQ(mib(node), 64u);
    Handle first = 0, second = 0;
    ASSERT_EQ(vmm_create(&first, 4 * kMiB), 0);
    ASSERT_EQ(vmm_create(&second, 2 * kMiB), 0);
    ASSERT_EQ(map_tiles({part(array, first, 0, 0, 1024, 1024)}), 0);
    ASSERT_EQ(vmm_release(first), 0);
    EXPECT_EQ(mib(node), 70u);
    EXPECT_EQ(map_tiles({part(array, first, 0, 0, 128, 128)}), 1);  // no longer a handle
    // Half of it replaced, the other half unmapped in two steps.
    ASSERT_EQ(map_tiles({part(array, second, 0, 0, 1024, 512)}, true), 0);
    ASSERT_EQ(vmm_release(second), 0);
    EXPECT_EQ(mib(node), 70u);
    ASSERT_EQ(map_tiles({part(array, 0, 0, 512, 1024, 384)}), 0);
    EXPECT_EQ(mib(node), 70u);
    ASSERT_EQ(map_tiles({part(array, 0, 0, 896, 1024, 128)}), 0);
    EXPECT_EQ(mib(node), 66u);
    ASSERT_EQ(array_destroy(array), 0);
    EXPECT_EQ(mib(node), 64u);
  });
}

TEST(SimSparse, ContextAndHandleGoInAnyOrder) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    void* context = nullptr;
    ASSERT_EQ((cuda<int(void**, unsigned, int)>("cuCtxCreate_v2")(&context, 0, 0)), 0);
    CUarray array = nullptr;
    Handle memory = 0;
    ASSERT_EQ(array_create(&array, kForm), 0);
    ASSERT_EQ(vmm_create(&memory, 4 * kMiB), 0);
    ASSERT_EQ(map_tiles({part(array, memory, 0, 0, 128, 128)}), 0);
    ASSERT_EQ(map_tiles({part(array, memory, 0, 0, 128, 128)}), 0);  // once more, the same
    ASSERT_EQ(cuda<int(void*)>("cuCtxDestroy_v2")(context), 0);
    EXPECT_EQ(mib(node), 68u);
    EXPECT_EQ(vmm_release(memory), 0);
    EXPECT_EQ(mib(node), 64u);
  });
}

TEST(SimSparse, OnlyWholeTilesThatFit) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    CUarray array = nullptr, plain = nullptr;
    Form form = kForm;
    form.Width = 1000;  // the last column is not a whole tile
    Handle memory = 0, other = 0;
    ASSERT_EQ(array_create(&array, form), 0);
    ASSERT_EQ(vmm_create(&memory, 2 * kMiB), 0);
    EXPECT_EQ(map_tiles({part(array, memory, 896, 0, 104, 128)}), 0);
    EXPECT_EQ(map_tiles({part(array, memory, 896, 0, 128, 128)}), 0);
    EXPECT_EQ(map_tiles({part(array, memory, 896, 0, 103, 128)}), 1);
    EXPECT_EQ(map_tiles({part(array, memory, 64, 0, 128, 128)}), 1);
    EXPECT_EQ(map_tiles({part(array, memory, 0, 0, 0, 128)}), 1);
    EXPECT_EQ(map_tiles({part(array, memory, 1024, 0, 128, 128)}), 1);
    EXPECT_EQ(map_tiles({part(array, memory, 0, 0, 1000, 640)}), 1);  // 40 tiles, room for 32
    CUarrayMapInfo info = part(array, memory, 0, 0, 512, 512);
    info.offset = kMiB;
    EXPECT_EQ(map_tiles({info}), 0);
    info.offset = kMiB + (64 << 10);
    EXPECT_EQ(map_tiles({info}), 1);
    info.offset = 512;
    EXPECT_EQ(map_tiles({info}), 1);
    info.offset = 0;
    info.deviceBitMask = 2;
    EXPECT_EQ(map_tiles({info}), 1);
    EXPECT_EQ(map_tiles({}), 1);
    // A list with one fault does nothing at all.
    ASSERT_EQ(vmm_create(&other, 2 * kMiB), 0);
    EXPECT_EQ(map_tiles({part(array, other, 0, 0, 128, 128), info}), 1);
    EXPECT_EQ(vmm_release(other), 0);
    EXPECT_EQ(mib(node), 66u);
    ASSERT_EQ(array_create(&plain, {1024, 1024, 0, 0x20, 1, 0}), 0);
    EXPECT_EQ(map_tiles({part(plain, memory, 0, 0, 128, 128)}), 1);
    EXPECT_EQ(map_tiles({part(nullptr, memory, 0, 0, 128, 128)}), 400);
  });
}

TEST(SimSparse, MipTailsAndLayers) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const Form form = {512, 512, 2, 0x20, 1, CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_LAYERED};
    CUmipmappedArray mipmap = nullptr;
    ASSERT_EQ(mipmap_create(&mipmap, form, 10), 0);
    EXPECT_EQ(mib(node), 64u);
    CUDA_ARRAY_SPARSE_PROPERTIES about = {};
    ASSERT_EQ((cuda<int(CUDA_ARRAY_SPARSE_PROPERTIES*, CUmipmappedArray)>(
                  "cuMipmappedArrayGetSparseProperties")(&about, mipmap)),
              0);
    EXPECT_EQ(about.tileExtent.width, 128u);
    EXPECT_EQ(about.tileExtent.height, 128u);
    EXPECT_EQ(about.tileExtent.depth, 1u);
    EXPECT_EQ(about.miptailFirstLevel, 3u);
    EXPECT_EQ(about.miptailSize, 64u << 10);  // 64 x 64 and smaller, of one layer
    Handle memory = 0;
    ASSERT_EQ(vmm_create(&memory, 2 * kMiB), 0);
    CUarrayMapInfo info = part(nullptr, memory, 0, 0, 128, 128);
    info.resourceType = 1;
    info.resource.mipmap = mipmap;
    info.subresource.sparseLevel.level = 2;
    info.subresource.sparseLevel.layer = 1;
    EXPECT_EQ(map_tiles({info}), 0);
    info.subresource.sparseLevel.layer = 2;
    EXPECT_EQ(map_tiles({info}), 1);
    info.subresource.sparseLevel.layer = 0;
    info.subresource.sparseLevel.level = 3;
    EXPECT_EQ(map_tiles({info}), 1);
    info.subresourceType = 1;
    info.subresource.miptail = {1, 0, 64 << 10};
    EXPECT_EQ(map_tiles({info}), 0);
    info.subresource.miptail = {1, 0, 128 << 10};
    EXPECT_EQ(map_tiles({info}), 1);
    EXPECT_EQ(vmm_release(memory), 0);
    EXPECT_EQ(mib(node), 66u);
    EXPECT_EQ(mipmap_destroy(mipmap), 0);
    EXPECT_EQ(mib(node), 64u);
  });
}

TEST(SimSparse, TilesOfOtherShapes) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    auto* ask = cuda<int(CUDA_ARRAY_SPARSE_PROPERTIES*, CUarray)>("cuArrayGetSparseProperties");
    const auto expect = [&](Form form, unsigned width, unsigned height, unsigned depth) {
      form.Flags |= CUDA_ARRAY3D_SPARSE;
      CUarray array = nullptr;
      ASSERT_EQ(array_create(&array, form), 0);
      CUDA_ARRAY_SPARSE_PROPERTIES about = {};
      ASSERT_EQ(ask(&about, array), 0);
      EXPECT_EQ(about.tileExtent.width, width);
      EXPECT_EQ(about.tileExtent.height, height);
      EXPECT_EQ(about.tileExtent.depth, depth);
      EXPECT_EQ(about.miptailSize, 0u);
    };
    expect({2048, 2048, 0, 0x01, 1, 0}, 256, 256, 1);
    expect({2048, 2048, 0, 0x10, 1, 0}, 256, 128, 1);
    expect({2048, 2048, 0, 0x20, 4, 0}, 64, 64, 1);
    expect({2048, 2048, 0, 0x91, 4, 0}, 512, 256, 1);  // BC1: 128 x 64 blocks
    expect({256, 256, 256, 0x01, 1, 0}, 64, 32, 32);
    expect({256, 256, 256, 0x20, 4, 0}, 16, 16, 16);
    CUarray plain = nullptr;
    CUDA_ARRAY_SPARSE_PROPERTIES about = {};
    ASSERT_EQ(array_create(&plain, {64, 64, 0, 0x20, 1, 0}), 0);
    EXPECT_EQ(ask(&about, plain), 1);
  });
}

TEST(SimSparse, DeferredArraysAreMappedAsAWhole) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    CUarray array = nullptr;
    Form form = kForm;
    form.Flags = CUDA_ARRAY3D_DEFERRED_MAPPING;  // 4 MiB
    ASSERT_EQ(array_create(&array, form), 0);
    Handle small = 0, memory = 0;
    ASSERT_EQ(vmm_create(&small, 2 * kMiB), 0);
    ASSERT_EQ(vmm_create(&memory, 4 * kMiB), 0);
    EXPECT_EQ(map_tiles({part(array, small, 0, 0, 0, 0)}), 1);
    EXPECT_EQ(map_tiles({part(array, memory, 0, 0, 0, 0)}), 0);
    EXPECT_EQ(vmm_release(small), 0);
    EXPECT_EQ(vmm_release(memory), 0);
    EXPECT_EQ(mib(node), 68u);
    EXPECT_EQ(map_tiles({part(array, 0, 0, 0, 0, 0)}), 0);
    EXPECT_EQ(mib(node), 64u);
    EXPECT_EQ(array_destroy(array), 0);
  });
}

}  // namespace
