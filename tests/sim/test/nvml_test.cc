// Tests of the simulated NVML: totals, versions of structures, process lists and their size
// probing. It is called in a child too, beside processes that hold memory through the driver. NVML
// itself must never appear in the node's process table.
#include <cstring>

#include "sim/nvml/abi.h"
#include "sim/test/support.h"

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

// A GPU in MIG mode: its instances are handles of their own, and CUDA sees one of them.
TEST(SimNvml, MigInstances) {
  TestNode node("h100-80gb-mig+a100-40gb");
  ASSERT_EQ(node->device_count(), 9) << "three rows are kept for instances to come";
  EXPECT_EQ(node->devices(sim::Vendor::kNvidia), (std::vector<int>{0, 5}));
  EXPECT_EQ(node->mig_instances(0), (std::vector<int>{1, 2, 3, 4}));
  for (int dev = 1; dev < 5; ++dev) {
    EXPECT_EQ(node->mig_parent(dev), 0);
    EXPECT_EQ(node->uuid(dev).substr(0, 4), "MIG-");
    for (int other = 1; other < dev; ++other) EXPECT_NE(node->uuid(dev), node->uuid(other));
  }
  setenv("CUDA_VISIBLE_DEVICES", node->uuid(3).c_str(), 1);
  Child holder([&](Child& parent) {
    ASSERT_EQ(cu_start(0), 0);
    int count = 0;
    EXPECT_EQ(cuda<int(int*)>("cuDeviceGetCount")(&count), 0);
    EXPECT_EQ(count, 1);
    unsigned char instance[16], gpu[16];
    EXPECT_EQ((cuda<int(void*, int)>("cuDeviceGetUuid_v2")(instance, 0)), 0);
    EXPECT_EQ((cuda<int(void*, int)>("cuDeviceGetUuid")(gpu, 0)), 0);
    EXPECT_EQ(std::memcmp(instance, node->device(3).uuid, 16), 0);
    EXPECT_EQ(std::memcmp(gpu, node->device(0).uuid, 16), 0) << "it is older than MIG";
    Pointer address = 0;
    EXPECT_EQ(cu_alloc(&address, 9000 * kMiB), 0);
    EXPECT_EQ(cu_alloc(&address, 1000 * kMiB), 2) << "the instance's memory, not the GPU's";
    parent.say(0);
    parent.hear();
  });
  unsetenv("CUDA_VISIBLE_DEVICES");
  holder.hear();
  EXPECT_EQ(node->used(3), (9000 + 500) * kMiB);
  EXPECT_EQ(node->used(4), 0u);
  in_child([&] {
    ASSERT_EQ(nvml<int()>("nvmlInit_v2")(), 0);
    nvmlDevice_t gpu = nullptr, third = nullptr, same = nullptr;
    auto* by_index =
        nvml<int(nvmlDevice_t, unsigned, nvmlDevice_t*)>("nvmlDeviceGetMigDeviceHandleByIndex");
    ASSERT_EQ((nvml<int(unsigned, nvmlDevice_t*)>("nvmlDeviceGetHandleByIndex_v2")(0, &gpu)), 0);
    ASSERT_EQ(by_index(gpu, 2, &third), 0);
    EXPECT_EQ(by_index(gpu, 4, &same), NVML_ERROR_NOT_FOUND);
    EXPECT_EQ(by_index(third, 0, &same), NVML_ERROR_INVALID_ARGUMENT);
    auto* parent_of =
        nvml<int(nvmlDevice_t, nvmlDevice_t*)>("nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
    ASSERT_EQ(parent_of(third, &same), 0);
    EXPECT_EQ(same, gpu);
    EXPECT_EQ(parent_of(gpu, &same), NVML_ERROR_INVALID_ARGUMENT);
    nvmlMemory_t memory = {};
    auto* info = nvml<int(nvmlDevice_t, nvmlMemory_t*)>("nvmlDeviceGetMemoryInfo");
    ASSERT_EQ(info(third, &memory), 0);
    EXPECT_EQ(memory.total, 9984 * kMiB);
    EXPECT_EQ(memory.used, (9000 + 500) * kMiB);
    ASSERT_EQ(info(gpu, &memory), 0);
    EXPECT_EQ(memory.used, (9000 + 500) * kMiB) << "what its instances have";
    auto* list = nvml<int(nvmlDevice_t, unsigned*, nvmlProcessInfo_v2_t*)>(
        "nvmlDeviceGetComputeRunningProcesses_v3");
    for (const nvmlDevice_t device : {gpu, third}) {
      nvmlProcessInfo_v2_t infos[2] = {};
      unsigned count = 2;
      ASSERT_EQ(list(device, &count, infos), 0);
      ASSERT_EQ(count, 1u);
      EXPECT_EQ(infos[0].gpu_instance, 9u);
    }
    nvmlDeviceAttributes_t attributes = {};
    auto* get = nvml<int(nvmlDevice_t, nvmlDeviceAttributes_t*)>("nvmlDeviceGetAttributes_v2");
    EXPECT_EQ(get(gpu, &attributes), NVML_ERROR_NOT_SUPPORTED);
    ASSERT_EQ(get(third, &attributes), 0);
    EXPECT_EQ(attributes.memory_mib, 9984u);
  });
  holder.say(1);
  EXPECT_TRUE(holder.ended());
}

}  // namespace
