// Tests of the simulated NVML: totals, versions of structures, process lists and their size
// probing. It is called in a child too, beside processes that hold memory through the driver. NVML
// itself must never appear in the node's process table.
#include <cstring>

#include "nvml_abi.h"
#include "test_support.h"

using namespace simtest;

namespace {

using Pointer = unsigned long long;

TEST(SimNvml, MemoryAndProcesses) {
  TestNode node("2xa100-40gb");
  const auto holder = [](int device) {
    return [device](Child& parent) {
      ASSERT_EQ(cu_start(device), 0);
      Pointer address = 0;
      ASSERT_EQ(cu_alloc(&address, 1024 * kMiB), 0);
      parent.say(0);
      parent.hear();
    };
  };
  Child first(holder(0)), second(holder(0)), third(holder(1));
  first.hear();
  second.hear();
  third.hear();
  in_child([&] {
    nvmlDevice_t device = nullptr;
    EXPECT_EQ((nvml<int(unsigned, nvmlDevice_t*)>("nvmlDeviceGetHandleByIndex_v2")(0, &device)), 1);
    ASSERT_EQ(nvml<int()>("nvmlInit_v2")(), 0);
    ASSERT_EQ((nvml<int(unsigned, nvmlDevice_t*)>("nvmlDeviceGetHandleByIndex")(0, &device)), 0);

    auto* info_v2 = nvml<int(nvmlDevice_t, nvmlMemory_v2_t*)>("nvmlDeviceGetMemoryInfo_v2");
    nvmlMemory_v2_t memory = {};
    EXPECT_EQ(info_v2(device, &memory), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    memory.version = kMemoryV2;
    ASSERT_EQ(info_v2(device, &memory), 0);
    EXPECT_EQ(memory.used, 2 * (414 + 1024) * kMiB);
    EXPECT_EQ(memory.total, memory.used + memory.free + memory.reserved);
    nvmlMemory_t old = {};
    ASSERT_EQ((nvml<int(nvmlDevice_t, nvmlMemory_t*)>("nvmlDeviceGetMemoryInfo")(device, &old)), 0);
    EXPECT_EQ(old.used, memory.used);
    EXPECT_EQ(old.total, 40960 * kMiB);

    auto* list = nvml<int(nvmlDevice_t, unsigned*, nvmlProcessInfo_v2_t*)>(
        "nvmlDeviceGetComputeRunningProcesses_v3");
    unsigned count = 0;
    EXPECT_EQ(list(device, &count, nullptr), NVML_ERROR_INSUFFICIENT_SIZE);
    EXPECT_EQ(count, 2u);
    nvmlProcessInfo_v2_t infos[4] = {};
    count = 1;
    EXPECT_EQ(list(device, &count, infos), NVML_ERROR_INSUFFICIENT_SIZE);
    EXPECT_EQ(count, 2u);
    count = 4;
    ASSERT_EQ(list(device, &count, infos), 0);
    ASSERT_EQ(count, 2u);
    for (unsigned i = 0; i < count; ++i) {
      EXPECT_TRUE(static_cast<pid_t>(infos[i].pid) == first.pid() ||
                  static_cast<pid_t>(infos[i].pid) == second.pid());
      EXPECT_EQ(infos[i].used, (414 + 1024) * kMiB);
      EXPECT_EQ(infos[i].gpu_instance, kNoInstance);
    }
    nvmlProcessInfo_v1_t narrow[4] = {};
    auto* list_v1 = nvml<int(nvmlDevice_t, unsigned*, nvmlProcessInfo_v1_t*)>(
        "nvmlDeviceGetComputeRunningProcesses");
    count = 4;
    ASSERT_EQ(list_v1(device, &count, narrow), 0);
    EXPECT_EQ(narrow[1].used, (414 + 1024) * kMiB);
    auto* graphics = nvml<int(nvmlDevice_t, unsigned*, nvmlProcessInfo_v2_t*)>(
        "nvmlDeviceGetGraphicsRunningProcesses_v3");
    count = 0;
    EXPECT_EQ(graphics(device, &count, nullptr), 0);

    nvmlProcessDetail_t details[4] = {};
    nvmlProcessDetailList_t detail_list = {kDetailListV1, 0, 4, details};
    ASSERT_EQ((nvml<int(nvmlDevice_t, nvmlProcessDetailList_t*)>(
                  "nvmlDeviceGetRunningProcessDetailList")(device, &detail_list)),
              0);
    EXPECT_EQ(detail_list.count, 2u);

    char uuid[96];
    ASSERT_EQ(
        (nvml<int(nvmlDevice_t, char*, unsigned)>("nvmlDeviceGetUUID")(device, uuid, sizeof uuid)),
        0);
    EXPECT_EQ(uuid, node->uuid(0));
    EXPECT_EQ((nvml<int(nvmlDevice_t, char*, unsigned)>("nvmlDeviceGetUUID")(device, uuid, 5)),
              NVML_ERROR_INSUFFICIENT_SIZE);
    nvmlDevice_t same = nullptr;
    ASSERT_EQ((nvml<int(const char*, nvmlDevice_t*)>("nvmlDeviceGetHandleByUUID")(
                  node->uuid(0).c_str(), &same)),
              0);
    EXPECT_EQ(same, device);
    EXPECT_EQ(nvml<int(nvmlDevice_t)>("nvmlDeviceGetFanSpeed")(device), NVML_ERROR_NOT_SUPPORTED);
  });
  EXPECT_EQ(node->processes().size(), 3u);
  for (Child* child : {&first, &second, &third}) {
    child->say(1);
    EXPECT_TRUE(child->ended());
  }
}

}  // namespace
