// A process is killed at any instruction of any family of calls: nothing of it may be left, the
// accounting must agree, and no mark may be higher than what was held.
// A different number of turns of our own work each round lands the kill at different instructions.
#include <unistd.h>

#include <atomic>

#include "sim/test/array_calls.h"
#include "sim/test/vmm_calls.h"

using namespace simtest;

namespace {

// Takes up to 4 MiB beyond the context at a time, in every way there is, for ever.
void work(Child& parent, int first) {
  ASSERT_EQ(cu_start(), 0);
  auto* set_limit = cuda<int(int, size_t)>("cuCtxSetLimit");
  auto* map_tiles = cuda<int(const CUarrayMapInfo*, unsigned, void*)>("cuMemMapArrayAsync");
  auto* load = cuda<int(void**, const void*)>("cuModuleLoadData");
  auto* unload = cuda<int(void*)>("cuModuleUnload");
  auto* end_external = cuda<int(void*)>("cuDestroyExternalMemory");
  auto* import_external = cuda<int(void**, const void*)>("cuImportExternalMemory");
  parent.say(0);
  for (int turn = first;; ++turn) {
    CUarray array = nullptr;
    Handle handle = 0;
    switch (turn % 5) {
      case 0:
        if (array_create(&array, {1024, 1024, 0, 0x20, 1, 0}) == 0) array_destroy(array);
        break;
      case 1:
        if (array_create(&array, {64, 64, 0, 0x20, 1, 0}) == 0) array_destroy(array);
        break;
      case 2: {
        CUarrayMapInfo info = {};
        info.subresource.sparseLevel = {0, 0, 0, 0, 0, 128, 128, 1};
        info.memOperationType = 1;
        info.deviceBitMask = 1;
        if (array_create(&info.resource.array, {512, 512, 0, 0x20, 1, CUDA_ARRAY3D_SPARSE}) != 0)
          break;
        if (vmm_create(&handle, 4 * kMiB) == 0) {
          info.memHandle.memHandle = handle;
          map_tiles(&info, 1, nullptr);
          vmm_release(handle);
        }
        array_destroy(info.resource.array);
        break;
      }
      case 3: {
        void* module = nullptr;
        if (set_limit(2, 10 * kMiB) == 0) {
          if (load(&module, "any image") == 0) unload(module);  // 2 MiB
          set_limit(2, 8 * kMiB);
        }
        break;
      }
      default: {
        CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {};
        description.type = 1;
        description.size = 2 * kMiB;
        void* memory = nullptr;
        if (vmm_create(&handle, 4 * kMiB) != 0) break;
        if (vmm_export(&description.handle.fd, handle) == 0) import_external(&memory, &description);
        vmm_release(handle);
        end_external(memory);
      }
    }
  }
}

TEST(SimDeath, AtAnyInstruction) {
  sim::NodeOptions options;
  options.context_mib = 2;
  TestNode node("tiny", options);
  setenv("FRACGPU_SIM_MODULE_MIB", "2", 1);
  std::atomic<uint64_t> turns{0};
  for (int round = 0; round < 60; ++round) {
    Child victim([round](Child& parent) { work(parent, round); });
    victim.hear();
    for (int spin = 0; spin < round * 1377; ++spin) turns.fetch_add(1);
    victim.kill();
    ASSERT_EQ(node->used(0), 0u) << round;
    std::string difference;
    ASSERT_TRUE(node->consistent(&difference)) << difference;
  }
  unsetenv("FRACGPU_SIM_MODULE_MIB");
  EXPECT_EQ(node->tenant_high_water(0, "none"), 6 * kMiB);
}

}  // namespace
