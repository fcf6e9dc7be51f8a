// Names of devices: what is a name, and which devices it means.
#include "shim/config/device_name.h"

#include <gtest/gtest.h>

#include "shim/config/limits.h"

namespace fracgpu {
namespace {

DeviceName amd(const char* key, int index, uint32_t function, int partition) {
  return {.key = key,
          .index = index,
          .has_bus_id = true,
          .bus_id = {
              .domain = 0, .bus = 0x0c, .device = 0, .function = function, .partition = partition}};
}

TEST(DeviceNameTest, WhatIsAName) {
  for (const char* text : {"0", "1023", "AMD-51234", "amd-7", "0000:0c:00.0", "0c:00.0", "c:0.7",
                           "00010000:0c:1f.0", "0000:0c:00.0/7", "0c:00.0/12",
                           "GPU-0a1b2c3d-0000-1111-2222-333344445555", "GPU-5a5a00ffEE112233"}) {
    Selector selector;
    EXPECT_TRUE(selector.parse(text)) << text;
  }
  for (const char* text : {"",
                           "1024",
                           "-1",
                           "AMD-",
                           "AMD-0",
                           "AMD-x",
                           "AMD-1234567890",
                           "AMD-12 ",
                           "0c:00",
                           "0c:00.8",
                           "0c:20.0",
                           "100:00.0",
                           "0000:0c:00.0/",
                           "0c:00.0/-1",
                           "0c:00.0/100",
                           "0c:00.0x",
                           ":00.0",
                           "0000:0c:00.0:0",
                           "GPU-12",
                           "MIG-5a5a00ffee112233",
                           "GPU-5a5a00ffee11223x"}) {
    Selector selector;
    EXPECT_FALSE(selector.parse(text)) << text;
  }
}

TEST(DeviceNameTest, ABusIdMeansAllPartitionsThatHaveIt) {
  Selector all, third, function;
  ASSERT_TRUE(all.parse("0000:0c:00.0"));
  ASSERT_TRUE(function.parse("0000:0c:00.5"));
  const auto partition = [](uint32_t number) {
    DeviceName device = amd("AMD-1", 0, number, 0);
    device.bus_id.function_is_partition = true;
    return device;
  };
  ASSERT_TRUE(third.parse("0c:00.0/3"));
  // Kernels since mid-2024: one bus id, and the partition beside it.
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(all.selects(amd("AMD-1", i, 0, i))) << i;
    EXPECT_EQ(third.selects(amd("AMD-1", i, 0, i)), i == 3) << i;
  }
  // Before: the partition is the function.
  for (uint32_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(all.selects(partition(i))) << i;
    EXPECT_EQ(third.selects(partition(i)), i == 3) << i;
    EXPECT_EQ(function.selects(partition(i)), i == 5) << i;
    // Functions that are GPUs of their own.
    EXPECT_EQ(all.selects(amd("AMD-1", 0, i, 0)), i == 0) << i;
  }
  Selector elsewhere;
  ASSERT_TRUE(elsewhere.parse("0001:0c:00.0"));
  EXPECT_FALSE(elsewhere.selects(amd("AMD-1", 0, 0, 0)));
  EXPECT_FALSE(all.selects({.key = "AMD-1", .index = 0})) << "nobody knows where it is";
}

TEST(DeviceNameTest, LimitsByEveryName) {
  Limits limits;
  Message error;
  ASSERT_TRUE(limits.parse("1GiB,AMD-7=2GiB,0c:00.0/2=3GiB,5=50%", error)) << error.view();
  constexpr uint64_t kGiB = 1ull << 30;
  EXPECT_EQ(limits.cap_for(amd("AMD-7", 0, 0, 0), 24 * kGiB), 2 * kGiB);
  EXPECT_EQ(limits.cap_for(amd("AMD-9", 2, 0, 2), 24 * kGiB), 3 * kGiB);
  EXPECT_EQ(limits.cap_for(amd("AMD-7", 2, 0, 2), 24 * kGiB), 2 * kGiB) << "the lowest counts";
  EXPECT_EQ(limits.cap_for(amd("AMD-8", 5, 0, 5), 24 * kGiB), 12 * kGiB)
      << "a part of the partition's own memory";
  EXPECT_EQ(limits.cap_for(amd("AMD-8", 6, 0, 6), 24 * kGiB), kGiB);
  EXPECT_FALSE(limits.parse("AMD-7=2GiB,amd-7=3GiB", error)) << "twice the same device";
  EXPECT_FALSE(limits.parse("GPU-5a5a00ffee112233=2GiB,gpu-5A5A00FFEE112233=3GiB", error));
  ASSERT_TRUE(limits.parse("gpu-5A5A00FFEE112233=2GiB", error)) << error.view();
  DeviceName known = amd("AMD-7", 0, 0, 0);
  EXPECT_EQ(limits.cap_for(known, 24 * kGiB), UINT64_MAX);
  known.whole.assign("GPU-5a5a00ffee112233");
  EXPECT_EQ(limits.cap_for(known, 24 * kGiB), 2 * kGiB);
  EXPECT_FALSE(limits.parse("0c:00.0=2GiB,0000:0C:00.0=3GiB", error));
}

}  // namespace
}  // namespace fracgpu
