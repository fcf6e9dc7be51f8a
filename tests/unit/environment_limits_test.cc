// The variables that cap a process, ours and other projects': what each means on a device, that the
// smallest holds, and that what is malformed is refused by name.
#include "shim/config/environment_limits.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <initializer_list>
#include <string>
#include <utility>

namespace fracgpu {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kPhysical = 80 << 10;  // MiB
constexpr char kNvidia[] = "GPU-0a1b2c3d-0000-1111-2222-333344445555";
constexpr char kAmd[] = "AMD-12345";

class EnvironmentLimitsTest : public testing::Test {
 protected:
  using Variables = std::initializer_list<std::pair<const char*, const char*>>;

  // Sets exactly these.
  void set(Variables variables) {
    clearenv();
    for (const auto& [name, value] : variables) setenv(name, value, 1);
  }
  // In MiB; 0: not capped.
  static uint64_t cap(const char* key, int index) {
    EnvironmentLimits limits;
    Message error;
    EXPECT_TRUE(limits.read(error)) << error.view();
    const uint64_t bytes = limits.cap_for({.key = key, .index = index}, kPhysical * kMiB);
    return bytes == UINT64_MAX ? 0 : bytes / kMiB;
  }
  std::string fault(Variables variables) {
    set(variables);
    EXPECT_TRUE(limit_is_in_environment());
    EnvironmentLimits limits;
    Message error;
    EXPECT_FALSE(limits.read(error));
    return std::string(error.view());
  }

  void TearDown() override { clearenv(); }
};

TEST_F(EnvironmentLimitsTest, NothingCapsWithoutThem) {
  set({{"CUDA_DEVICE_SM_LIMIT", "50"},
       {"CUDA_DEVICE_MEMORY_SHARED_CACHE", "/tmp/x.cache"},
       {"XCUDA_DEVICE_MEMORY_LIMIT", "1g"},
       {"NVIDIA_GPU_MEMORY_LIMITS", "1"},
       {"CUDA_DEVICE_MEMORY_LIMITED", "1g"},
       {"CUDA_DEVICE_MEMORY_LIMIT_0", ""}});
  EXPECT_FALSE(limit_is_in_environment());
  EXPECT_EQ(cap(kNvidia, 0), 0u);
}

TEST_F(EnvironmentLimitsTest, HamiForNvidia) {
  for (const char* const gib : {"1g", "1G", "1024m", "1024M", "1048576k", "1073741824"}) {
    set({{"CUDA_DEVICE_MEMORY_LIMIT", gib}});
    EXPECT_TRUE(limit_is_in_environment());
    EXPECT_EQ(cap(kNvidia, 3), 1024u) << gib;
    EXPECT_EQ(cap(kAmd, 3), 0u) << gib;
  }
  set({{"CUDA_DEVICE_MEMORY_LIMIT_0", "3000m"}, {"CUDA_DEVICE_MEMORY_LIMIT_12", "2g"}});
  EXPECT_TRUE(limit_is_in_environment());
  EXPECT_EQ(cap(kNvidia, 0), 3000u);
  EXPECT_EQ(cap(kNvidia, 12), 2048u);
  EXPECT_EQ(cap(kNvidia, 1), 0u);
  set({{"CUDA_DEVICE_MEMORY_LIMIT", "1g"}, {"CUDA_DEVICE_MEMORY_LIMIT_1", "3g"}});
  EXPECT_EQ(cap(kNvidia, 0), 1024u);
  EXPECT_EQ(cap(kNvidia, 1), 3072u) << "one with an index beats the one without, as in HAMi-core";
}

TEST_F(EnvironmentLimitsTest, HamiForAmd) {
  set({{"HIP_DEVICE_MEMORY_LIMIT", "1g"}, {"HIP_DEVICE_MEMORY_LIMIT_1", "512m"}});
  EXPECT_EQ(cap(kAmd, 0), 1024u);
  EXPECT_EQ(cap(kAmd, 1), 512u);
  EXPECT_EQ(cap(kNvidia, 0), 0u);
}

TEST_F(EnvironmentLimitsTest, NvidiasToolkit) {
  set({{"NVIDIA_GPU_MEMORY_LIMIT", "2048"}, {"NVIDIA_GPU_MEMORY_REQUEST", "1024"}});
  EXPECT_EQ(cap(kNvidia, 0), 2048u);
  EXPECT_EQ(cap(kNvidia, 7), 2048u);
  EXPECT_EQ(cap(kAmd, 0), 0u);
}

TEST_F(EnvironmentLimitsTest, TheSmallestHolds) {
  set({{"FRACGPU_MEMORY_LIMIT", "3GiB"},
       {"CUDA_DEVICE_MEMORY_LIMIT_0", "2g"},
       {"NVIDIA_GPU_MEMORY_LIMIT", "2500"}});
  EXPECT_EQ(cap(kNvidia, 0), 2048u);
  EXPECT_EQ(cap(kNvidia, 1), 2500u);
  EXPECT_EQ(cap(kAmd, 0), 3072u);
}

TEST_F(EnvironmentLimitsTest, WhatIsMalformedIsRefusedByName) {
  for (const char* const wrong :
       {"0", "0m", "m", "12x", "-1g", "1.5g", " 1g", "1 g", "0x10m", "1gb", "1g,2g", "99999999999g",
        "99999999999999999999", "9223372036854775808"}) {
    const std::string error = fault({{"CUDA_DEVICE_MEMORY_LIMIT_3", wrong}});
    EXPECT_NE(error.find("CUDA_DEVICE_MEMORY_LIMIT_3"), error.npos) << error;
    EXPECT_NE(error.find(wrong), error.npos) << error;
    EXPECT_NE(error.find("accepted: 3000m"), error.npos) << error;
  }
  for (const char* const wrong : {"0", "2g", "2048m", "2GiB", "-1", "1.5", "99999999999999"}) {
    const std::string error = fault({{"NVIDIA_GPU_MEMORY_LIMIT", wrong}});
    EXPECT_NE(error.find("NVIDIA_GPU_MEMORY_LIMIT"), error.npos) << error;
    EXPECT_NE(error.find("accepted: whole MiB"), error.npos) << error;
  }
  for (const char* const name :
       {"CUDA_DEVICE_MEMORY_LIMIT_", "CUDA_DEVICE_MEMORY_LIMIT_x", "HIP_DEVICE_MEMORY_LIMIT_-1",
        "CUDA_DEVICE_MEMORY_LIMIT_32", "HIP_DEVICE_MEMORY_LIMIT_1_2"}) {
    const std::string error = fault({{name, "1g"}});
    EXPECT_NE(error.find(name), error.npos) << error;
    EXPECT_NE(error.find("no index of a GPU"), error.npos) << error;
  }
  EXPECT_NE(fault({{"FRACGPU_MEMORY_LIMIT", ""}}).find("FRACGPU_MEMORY_LIMIT"), std::string::npos);
}

TEST_F(EnvironmentLimitsTest, AnIndexThatNoDeviceHasIsNamed) {
  set({{"FRACGPU_MEMORY_LIMIT", "1=1GiB"}, {"CUDA_DEVICE_MEMORY_LIMIT_5", "1g"}});
  EnvironmentLimits limits;
  Message error;
  ASSERT_TRUE(limits.read(error));
  const auto below = [](int count) {
    return [count](const Selector& selector) { return selector.index < count; };
  };
  EXPECT_EQ(limits.unknown_selector(below(1)).view(), "1");
  EXPECT_EQ(limits.unknown_selector(below(5)).view(), "5");
  EXPECT_TRUE(limits.unknown_selector(below(6)).empty());
  EXPECT_TRUE(limits.selects_by(Selector::Kind::index));
}

TEST_F(EnvironmentLimitsTest, OversubscriptionIsRefused) {
  const std::string error =
      fault({{"CUDA_OVERSUBSCRIBE", "true"}, {"CUDA_DEVICE_MEMORY_LIMIT_0", "1g"}});
  EXPECT_NE(error.find("CUDA_OVERSUBSCRIBE"), error.npos) << error;
  set({{"CUDA_OVERSUBSCRIBE", "false"}, {"CUDA_DEVICE_MEMORY_LIMIT_0", "1g"}});
  EXPECT_EQ(cap(kNvidia, 0), 1024u);
}

TEST_F(EnvironmentLimitsTest, LimitsOfComputeAreNamed) {
  set({{"CUDA_DEVICE_SM_LIMIT", "50"}, {"CUDA_DEVICE_MEMORY_LIMIT", "1g"}});
  EnvironmentLimits limits;
  Message error;
  ASSERT_TRUE(limits.read(error));
  EXPECT_EQ(limits.unenforced(), "CUDA_DEVICE_SM_LIMIT");
}

}  // namespace
}  // namespace fracgpu
