// Tests of MIG instances that come and go: what there is room for and where, who is refused, and
// that neither a race nor a kill ever leaves two instances in one place.
#include "sim/node/mig.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "sim/nvml/abi.h"
#include "sim/test/support.h"

using namespace simtest;

namespace {

using Placement = nvmlGpuInstancePlacement_t;

// The calls of a process that has initialised NVML; the first GPU is its GPU.
struct Calls {
  explicit Calls(const char* root = "1") {
    setenv("FRACGPU_SIM_NVML_ROOT", root, 1);
    EXPECT_EQ(nvml<int()>("nvmlInit_v2")(), 0);
    EXPECT_EQ((nvml<int(unsigned, nvmlDevice_t*)>("nvmlDeviceGetHandleByIndex_v2")(0, &gpu)), 0);
  }
  int make(unsigned profile, nvmlGpuInstance_t* out) const { return create(gpu, profile, out); }
  unsigned id(nvmlGpuInstance_t instance) const {
    nvmlGpuInstanceInfo_t info = {};
    EXPECT_EQ(about(instance, &info), 0);
    return info.id;
  }
  unsigned room(unsigned profile) const {
    unsigned count = 99;
    EXPECT_EQ(capacity(gpu, profile, &count), 0);
    return count;
  }

  nvmlDevice_t gpu = nullptr;
  int (*create)(nvmlDevice_t, unsigned, nvmlGpuInstance_t*) =
      nvml<int(nvmlDevice_t, unsigned, nvmlGpuInstance_t*)>("nvmlDeviceCreateGpuInstance");
  int (*create_at)(nvmlDevice_t, unsigned, const Placement*, nvmlGpuInstance_t*) =
      nvml<int(nvmlDevice_t, unsigned, const Placement*, nvmlGpuInstance_t*)>(
          "nvmlDeviceCreateGpuInstanceWithPlacement");
  int (*about)(nvmlGpuInstance_t, nvmlGpuInstanceInfo_t*) =
      nvml<int(nvmlGpuInstance_t, nvmlGpuInstanceInfo_t*)>("nvmlGpuInstanceGetInfo");
  int (*capacity)(nvmlDevice_t, unsigned, unsigned*) =
      nvml<int(nvmlDevice_t, unsigned, unsigned*)>("nvmlDeviceGetGpuInstanceRemainingCapacity");
  int (*destroy)(nvmlGpuInstance_t) = nvml<int(nvmlGpuInstance_t)>("nvmlGpuInstanceDestroy");
  int (*create_compute)(nvmlGpuInstance_t, unsigned, nvmlComputeInstance_t*) =
      nvml<int(nvmlGpuInstance_t, unsigned, nvmlComputeInstance_t*)>(
          "nvmlGpuInstanceCreateComputeInstance");
  int (*destroy_compute)(nvmlComputeInstance_t) =
      nvml<int(nvmlComputeInstance_t)>("nvmlComputeInstanceDestroy");
  int (*mig_device)(nvmlDevice_t, unsigned, nvmlDevice_t*) =
      nvml<int(nvmlDevice_t, unsigned, nvmlDevice_t*)>("nvmlDeviceGetMigDeviceHandleByIndex");
};

// Nobody makes or takes away anything meanwhile.
void expect_no_overlap(sim::Node& node, int gpu) {
  const sim::MigLock lock(node);
  uint32_t taken = 0;
  for (const int instance : node.mig_instances(gpu)) {
    const sim::DeviceRow& row = node.device(instance);
    const uint32_t here = ((1U << row.mig_size) - 1) << row.mig_start;
    EXPECT_EQ(taken & here, 0u);
    taken |= here;
  }
}

TEST(SimMig, EveryProductHasWhatItsTableSays) {
  for (const char* name : {"a30", "a100-40gb", "a100-80gb", "h100-80gb", "h200", "b200", "gb200"}) {
    SCOPED_TRACE(name);
    TestNode node((std::string(name) + "-mig-empty").c_str());
    const sim::MigCard& card = *sim::mig_card(name);
    in_child([&] {
      const Calls calls;
      auto* get = nvml<int(nvmlDevice_t, unsigned, nvmlGpuInstanceProfileInfo_v3_t*)>(
          "nvmlDeviceGetGpuInstanceProfileInfoV");
      auto* places = nvml<int(nvmlDevice_t, unsigned, Placement*, unsigned*)>(
          "nvmlDeviceGetGpuInstancePossiblePlacements_v2");
      size_t found = 0;
      for (unsigned kind = 0; kind < sim::kMigKinds; ++kind) {
        nvmlGpuInstanceProfileInfo_v3_t info = {};
        EXPECT_EQ(get(calls.gpu, kind, &info), card.by_kind(kind) != nullptr
                                                   ? NVML_ERROR_ARGUMENT_VERSION_MISMATCH
                                                   : NVML_ERROR_NOT_SUPPORTED);
        info.version = struct_version<nvmlGpuInstanceProfileInfo_v3_t>(3);
        if (get(calls.gpu, kind, &info) != 0) continue;
        ++found;
        EXPECT_EQ(calls.room(info.id), info.instances);
        unsigned count = 0;
        Placement list[8] = {};
        EXPECT_EQ(places(calls.gpu, info.id, list, &count), 0);
        EXPECT_GE(count, info.instances);
        for (unsigned i = 0; i < count; ++i) EXPECT_LE(list[i].start + list[i].size, card.memory);
        std::vector<nvmlGpuInstance_t> made(info.instances);
        for (nvmlGpuInstance_t& one : made) EXPECT_EQ(calls.make(info.id, &one), 0) << info.name;
        nvmlGpuInstance_t more = nullptr;
        EXPECT_EQ(calls.make(info.id, &more), NVML_ERROR_INSUFFICIENT_RESOURCES);
        for (const nvmlGpuInstance_t one : made) EXPECT_EQ(calls.destroy(one), 0);
      }
      EXPECT_EQ(found, card.profiles.size());
    });
  }
}

// By the ids, which tell the places.
TEST(SimMig, PlacesLeaveRoomForOthers) {
  TestNode node("a100-40gb-mig-empty");
  const auto ids = [&](const std::vector<unsigned>& profiles) {
    std::vector<unsigned> got;
    const Calls calls;
    std::vector<nvmlGpuInstance_t> made;
    for (const unsigned profile : profiles) {
      EXPECT_EQ(calls.make(profile, &made.emplace_back()), 0);
      got.push_back(calls.id(made.back()));
    }
    for (const nvmlGpuInstance_t one : made) EXPECT_EQ(calls.destroy(one), 0);
    return got;
  };
  in_child([&] {
    EXPECT_EQ(ids({19, 19, 19, 19, 19, 19, 19}), (std::vector<unsigned>{13, 11, 12, 7, 8, 9, 10}));
    EXPECT_EQ(ids({19, 14, 5}), (std::vector<unsigned>{13, 5, 1}));
    EXPECT_EQ(ids({9, 14, 19, 19}), (std::vector<unsigned>{2, 3, 9, 10}));
    EXPECT_EQ(ids({9, 9}), (std::vector<unsigned>{2, 1}));
  });
}

TEST(SimMig, Refusals) {
  TestNode node("h100-80gb-mig-empty");
  in_child([&] {
    const Calls calls;
    nvmlGpuInstance_t half = nullptr, other = nullptr;
    EXPECT_EQ(calls.make(77, &other), NVML_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(calls.make(9, nullptr), NVML_ERROR_INVALID_ARGUMENT);
    Placement where = {2, 4};
    EXPECT_EQ(calls.create_at(calls.gpu, 9, &where, &half), NVML_ERROR_INVALID_ARGUMENT);
    where.start = 0;
    ASSERT_EQ(calls.create_at(calls.gpu, 9, &where, &half), 0);
    EXPECT_EQ(calls.create_at(calls.gpu, 9, &where, &other), NVML_ERROR_INSUFFICIENT_RESOURCES);
    EXPECT_EQ(calls.make(0, &other), NVML_ERROR_INSUFFICIENT_RESOURCES);
    EXPECT_EQ(calls.room(9), 1u);
    EXPECT_EQ(calls.room(19), 3u);
    EXPECT_EQ(calls.room(5), 0u);

    nvmlComputeInstance_t part = nullptr, another = nullptr;
    EXPECT_EQ(calls.create_compute(half, 3, &part), NVML_ERROR_NOT_SUPPORTED) << "four of three";
    ASSERT_EQ(calls.create_compute(half, 1, &part), 0);
    EXPECT_EQ(calls.create_compute(half, 1, &another), NVML_ERROR_INSUFFICIENT_RESOURCES);
    EXPECT_EQ(calls.destroy(half), NVML_ERROR_IN_USE);
    unsigned state = 0;
    auto* mode = nvml<int(nvmlDevice_t, unsigned, int*)>("nvmlDeviceSetMigMode");
    int activation = 0;
    EXPECT_EQ(mode(calls.gpu, 0, &activation), 0);
    EXPECT_EQ(activation, NVML_ERROR_IN_USE);
    EXPECT_EQ(calls.destroy_compute(part), 0);
    EXPECT_EQ(calls.destroy_compute(part), NVML_ERROR_INVALID_ARGUMENT) << "it is gone";
    EXPECT_EQ(calls.destroy(half), 0);
    EXPECT_EQ(calls.destroy(half), NVML_ERROR_INVALID_ARGUMENT);

    setenv("FRACGPU_SIM_NVML_ROOT", "0", 1);
    EXPECT_EQ(calls.make(9, &half), NVML_ERROR_NO_PERMISSION);
    EXPECT_EQ(calls.capacity(calls.gpu, 9, &state), NVML_ERROR_NO_PERMISSION);
    EXPECT_EQ(mode(calls.gpu, 0, &activation), NVML_ERROR_NO_PERMISSION);
    setenv("FRACGPU_SIM_NVML_ROOT", "1", 1);
    EXPECT_EQ(mode(calls.gpu, 0, &activation), 0);
    EXPECT_EQ(activation, 0);
    EXPECT_EQ(calls.make(9, &half), NVML_ERROR_NOT_SUPPORTED) << "the mode is off";
    EXPECT_EQ(mode(calls.gpu, 1, &activation), 0);
    EXPECT_EQ(calls.make(9, &half), 0);
  });
  TestNode plain("h100-80gb");
  in_child([&] {
    const Calls calls;
    int activation = 0;
    EXPECT_EQ((nvml<int(nvmlDevice_t, unsigned, int*)>("nvmlDeviceSetMigMode")(calls.gpu, 1,
                                                                               &activation)),
              NVML_ERROR_NOT_SUPPORTED);
  });
}

TEST(SimMig, OrderedFailure) {
  TestNode node("h100-80gb-mig-empty");
  setenv("FRACGPU_SIM_FAIL", "nvmlDeviceCreateGpuInstance:2=16", 1);
  in_child([&] {
    const Calls calls;
    nvmlGpuInstance_t made = nullptr;
    EXPECT_EQ(calls.make(19, &made), 0);
    EXPECT_EQ(calls.make(19, &made), NVML_ERROR_RESET_REQUIRED);
    EXPECT_EQ(calls.room(19), 6u);
  });
  unsetenv("FRACGPU_SIM_FAIL");
}

// Makes a GPU instance with so many compute instances of one profile.
void divide(unsigned profile, unsigned part, int parts) {
  in_child([&] {
    const Calls calls;
    nvmlGpuInstance_t made = nullptr;
    nvmlComputeInstance_t compute = nullptr;
    ASSERT_EQ(calls.make(profile, &made), 0);
    for (int i = 0; i < parts; ++i) ASSERT_EQ(calls.create_compute(made, part, &compute), 0);
  });
}

// Takes away everything that can be, and says what refused.
int clear(sim::Node& node) {
  int refused = 0;
  for (const sim::MigDevice& device : sim::mig_devices(node, 0))
    refused += sim::destroy_compute_instance(node, device) != sim::MigResult::kDone ? 1 : 0;
  for (const int row : node.mig_instances(0)) {
    const uint64_t serial = node.device(row).mig_serial.load();
    refused += sim::destroy_gpu_instance(node, row, serial) != sim::MigResult::kDone ? 1 : 0;
  }
  return refused;
}

// Two compute instances of one GPU instance share its memory, and each has its own process.
TEST(SimMig, CudaUsesWhatWasMade) {
  TestNode node("h100-80gb-mig-empty");
  in_child([] { EXPECT_EQ(cu_start(0), 100) << "a GPU in MIG mode is none by itself"; });
  divide(9, 0, 2);
  const std::vector<sim::MigDevice> devices = sim::mig_devices(*node, 0);
  ASSERT_EQ(devices.size(), 2u);
  const int row = devices[0].dev;
  const std::string first_uuid = sim::mig_uuid(*node, devices[0]);
  EXPECT_NE(first_uuid, sim::mig_uuid(*node, devices[1]));
  const auto holder = [&](const sim::MigDevice& device) {
    setenv("CUDA_VISIBLE_DEVICES", sim::mig_uuid(*node, device).c_str(), 1);
    return [&](Child& parent) {
      ASSERT_EQ(cu_start(0), 0);
      char name[96];
      EXPECT_EQ((cuda<int(char*, int, int)>("cuDeviceGetName")(name, 96, 0)), 0);
      EXPECT_STREQ(name, "NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb");
      int count = 0;
      EXPECT_EQ((cuda<int(int*, int, int)>("cuDeviceGetAttribute")(&count, 16, 0)), 0);
      EXPECT_EQ(count, 16);
      EXPECT_EQ(cuda<int(int*)>("cuDeviceGetCount")(&count), 0);
      EXPECT_EQ(count, 1);
      unsigned long long address = 0;
      EXPECT_EQ(cu_alloc(&address, 19000 * kMiB), 0);
      EXPECT_EQ(cu_alloc(&address, 22000 * kMiB), 2);
      parent.say(0);
      parent.hear();
    };
  };
  Child first(holder(devices[0]));
  first.hear();
  Child second(holder(devices[1]));
  second.hear();
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(node->used(row), 2 * (19000 + 500) * kMiB);
  in_child([&] {
    const Calls calls;
    auto* list = nvml<int(nvmlDevice_t, unsigned*, nvmlProcessInfo_v2_t*)>(
        "nvmlDeviceGetComputeRunningProcesses_v3");
    auto* get = nvml<int(nvmlDevice_t, nvmlDeviceAttributes_t*)>("nvmlDeviceGetAttributes_v2");
    const std::array<pid_t, 2> pids = {first.pid(), second.pid()};
    for (unsigned i = 0; i < 2; ++i) {
      nvmlDevice_t device = nullptr;
      ASSERT_EQ(calls.mig_device(calls.gpu, i, &device), 0);
      nvmlProcessInfo_v2_t infos[2] = {};
      unsigned count = 2;
      ASSERT_EQ(list(device, &count, infos), 0);
      ASSERT_EQ(count, 1u);
      EXPECT_EQ(static_cast<pid_t>(infos[0].pid), pids[i]);
      EXPECT_EQ(infos[0].gpu_instance, 2u);
      EXPECT_EQ(infos[0].compute_instance, i);
      nvmlDeviceAttributes_t attributes = {};
      ASSERT_EQ(get(device, &attributes), 0);
      EXPECT_EQ(attributes.gpu_slices, 3u);
      EXPECT_EQ(attributes.compute_slices, 1u);
      EXPECT_EQ(attributes.multiprocessors, 16u);
      EXPECT_EQ(attributes.memory_mib, 40448u);
    }
  });
  EXPECT_EQ(clear(*node), 3) << "two are used, and the third is where they are";
  first.kill();
  second.say(0);
  EXPECT_TRUE(second.ended());
  EXPECT_EQ(clear(*node), 0);
  EXPECT_EQ(node->used(row), 0u);
  divide(9, 2, 1);
  EXPECT_EQ(node->tenant_high_water(row, "none"), 0u) << "a new one has no past";
  EXPECT_NE(sim::mig_uuid(*node, sim::mig_devices(*node, 0).front()), first_uuid);
  setenv("CUDA_VISIBLE_DEVICES", first_uuid.c_str(), 1);
  in_child([] { EXPECT_EQ(cu_start(0), 100) << "what is gone is not found"; });
  unsetenv("CUDA_VISIBLE_DEVICES");
}

// Makes and takes away, for ever or so often, each time another profile.
void churn(Child& parent, int times) {
  const Calls calls;
  parent.say(0);
  constexpr unsigned kProfiles[] = {19, 14, 9, 15, 5, 20, 0};
  for (int i = 0; i != times; ++i) {
    nvmlGpuInstance_t made = nullptr;
    nvmlComputeInstance_t part = nullptr;
    const int result = calls.make(kProfiles[(i + getpid()) % 7], &made);
    ASSERT_TRUE(result == 0 || result == NVML_ERROR_INSUFFICIENT_RESOURCES) << result;
    if (result != 0) continue;
    ASSERT_EQ(calls.create_compute(made, 0, &part), 0);
    ASSERT_EQ(calls.destroy_compute(part), 0);
    ASSERT_EQ(calls.destroy(made), 0);
  }
}

TEST(SimMig, RacingProcessesNeverOverlap) {
  TestNode node("h100-80gb-mig-empty");
  const auto body = [](Child& parent) { churn(parent, 400); };
  Child first(body), second(body), third(body);
  for (Child* child : {&first, &second, &third}) child->hear();
  for (int i = 0; i < 200; ++i) expect_no_overlap(*node, 0);
  for (Child* child : {&first, &second, &third}) EXPECT_TRUE(child->ended());
  EXPECT_TRUE(node->mig_instances(0).empty());
}

TEST(SimMig, KillsLeaveWholeInstances) {
  TestNode node("h100-80gb-mig-empty");
  for (int round = 0; round < 60; ++round) {
    Child victim([](Child& parent) { churn(parent, -1); });
    victim.hear();
    usleep(static_cast<useconds_t>(37 * round));
    victim.kill();
    expect_no_overlap(*node, 0);
    ASSERT_EQ(clear(*node), 0) << round;
    ASSERT_EQ(sim::room_for(*node, 0, *sim::mig_card("h100-80gb")->by_id(0)), 1u);
  }
  std::string difference;
  EXPECT_TRUE(node->consistent(&difference)) << difference;
}

TEST(SimMig, GpusWithAndWithoutMig) {
  TestNode node("6xh100-80gb-mig-empty+a100-40gb-mig-off+2xa100-40gb");
  const std::vector<int> gpus = node->devices(sim::Vendor::kNvidia);
  ASSERT_EQ(gpus.size(), 9u);
  EXPECT_TRUE(sim::mig_is_on(*node, gpus[5]));
  EXPECT_FALSE(sim::mig_is_on(*node, gpus[6]));
  EXPECT_NE(sim::card_of(*node, gpus[6]), nullptr);
  EXPECT_EQ(sim::card_of(*node, gpus[7]), nullptr);
  in_child([] {
    EXPECT_EQ(cu_start(0), 0);
    int count = 0;
    EXPECT_EQ(cuda<int(int*)>("cuDeviceGetCount")(&count), 0);
    EXPECT_EQ(count, 3) << "those in MIG mode have no instance";
  });
}

}  // namespace
