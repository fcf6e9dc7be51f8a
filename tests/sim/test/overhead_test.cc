// Tests of the limits of contexts, and of ordered failures and death with everything that no
// allocation call takes. All of it is the context's: it must be counted there, come back when it is
// undone, and be gone with the context.
#include <unistd.h>

#include "sim/node/calls.h"
#include "sim/test/overhead_calls.h"

using namespace simtest;

namespace {

TEST(SimLimit, LevelsOfSynchronisationArePaid) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const uint64_t before = node->used(0);
    ASSERT_EQ(set_limit(3, 2), 0);  // as it was
    EXPECT_EQ(node->used(0), before);
    ASSERT_EQ(set_limit(3, 3), 0);
    EXPECT_EQ(node->used(0), before + 144 * kMiB);  // 150 MB in whole pages
    ASSERT_EQ(set_limit(3, 2), 0);
    EXPECT_EQ(node->used(0), before);
  });
}

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

void* load_module(const char* image) {
  void* module = nullptr;
  EXPECT_EQ((cuda<int(void**, const void*)>("cuModuleLoadData")(&module, image)), 0);
  return module;
}
int unload_module(void* module) {
  return cuda<int(void*)>("cuModuleUnload")(module);
}
int launch() {
  return cuda<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void*, void**, void**)>("cuLaunchKernel")(reinterpret_cast<void*>(1), 1, 1, 1, 1,
                                                            1, 1, 0, nullptr, nullptr, nullptr);
}

TEST(SimOverhead, AnImageMaySayWhatItTakes) {
  TestNode node;
  setenv("FRACGPU_SIM_MODULE_MIB", "4", 1);
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    void* const first = load_module("10 MiB");
    EXPECT_EQ(mib(node), 64u + 10);
    load_module("any");
    EXPECT_EQ(mib(node), 64u + 10 + 4);
    EXPECT_EQ(unload_module(first), 0);
    EXPECT_EQ(mib(node), 64u + 4);
  });
  unsetenv("FRACGPU_SIM_MODULE_MIB");
}

TEST(SimOverhead, KeptModulesLeaveTheirMemoryToTheNext) {
  TestNode node;
  setenv("FRACGPU_SIM_MODULES_KEPT", "1", 1);
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    ASSERT_EQ(unload_module(load_module("10")), 0);
    EXPECT_EQ(mib(node), 64u + 10);
    load_module("6");
    EXPECT_EQ(mib(node), 64u + 10);
    load_module("6");
    EXPECT_EQ(mib(node), 64u + 12);
    ASSERT_EQ(cuda<int(int)>("cuDevicePrimaryCtxReset_v2")(0), 0);
    EXPECT_EQ(mib(node), 0u);
    ASSERT_EQ(cu_start(), 0);
    load_module("6");
    EXPECT_EQ(mib(node), 64u + 6);
  });
  unsetenv("FRACGPU_SIM_MODULES_KEPT");
}

TEST(SimOverhead, TheFirstLaunchOfAContextTakesMemory) {
  TestNode node;
  setenv("FRACGPU_SIM_LAUNCH_MIB", "100", 1);
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    ASSERT_EQ(launch(), 0);
    ASSERT_EQ(launch(), 0);
    EXPECT_EQ(mib(node), 164u);
    void* const context = make_context();
    ASSERT_EQ(launch(), 0);
    EXPECT_EQ(mib(node), 164u + 164);
    ASSERT_EQ(destroy_context(context), 0);
    EXPECT_EQ(mib(node), 164u);
  });
  unsetenv("FRACGPU_SIM_LAUNCH_MIB");
}

TEST(SimCalls, AreCountedByName) {
  TestNode node;
  const std::string path = node.path() + ".calls";
  setenv(sim::kCallsVariable, path.c_str(), 1);
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    auto* init = nvml<int()>("nvmlInit_v2");
    ASSERT_EQ(init(), 0);
    void* device = nullptr;
    unsigned count = 0;
    ASSERT_EQ((nvml<int(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2")(0, &device)), 0);
    // The process itself is in the list, so there is too little room.
    EXPECT_EQ((nvml<int(void*, unsigned*, void*)>("nvmlDeviceGetComputeRunningProcesses_v2")(
                  device, &count, nullptr)),
              7);
    for (int i = 0; i < 3; ++i) set_limit(2, 8 * kMiB);
  });
  const auto calls = sim::CallCounts::open(path);
  unlink(path.c_str());
  unsetenv(sim::kCallsVariable);
  EXPECT_EQ(calls->beginning_with("cuCtxSetLimit"), 3u);
  EXPECT_EQ(calls->of_driver(), 3u + 3) << "with cuInit, the context's making and its setting";
  EXPECT_EQ(calls->of_nvml(), 3u);
  EXPECT_EQ(calls->of_process_lists(), 1u);
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
