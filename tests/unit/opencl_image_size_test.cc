// What images are said to take, beside what 16 of each size took by the kernel's count, with
// NVIDIA's OpenCL 535.261.03 on a simulated kernel driver.
#include <gtest/gtest.h>

#include "hooks/opencl/image_size.h"

namespace fracgpu::opencl {
namespace {

TEST(OpenclImageSize, IsWhatTheDriverTook) {
  constexpr int kImages = 16;
  constexpr struct {
    size_t width, height, depth, element, taken_kib;
  } seen[] = {
      {1024, 1024, 0, 16, 262144}, {1000, 1000, 0, 16, 262144}, {1, 1, 0, 16, 2048},
      {100, 100, 0, 16, 4096},     {128, 128, 0, 16, 4096},     {200, 200, 0, 16, 16384},
      {256, 256, 0, 16, 16384},    {300, 300, 0, 16, 32768},    {16384, 4, 0, 16, 32768},
      {4, 16384, 0, 16, 16384},    {333, 777, 0, 16, 98304},    {2000, 2000, 0, 16, 1048576},
      {100, 100, 100, 16, 294912}, {33, 33, 33, 16, 32768},     {64, 64, 64, 16, 65536},
      {1, 1000, 3, 16, 4096},      {500, 500, 5, 16, 524288},   {1024, 1024, 0, 4, 65536},
      {1000, 1000, 0, 4, 65536},   {1, 1, 0, 4, 2048},          {100, 100, 0, 4, 2048},
      {128, 128, 0, 4, 2048},      {200, 200, 0, 4, 4096},      {256, 256, 0, 4, 4096},
      {300, 300, 0, 4, 8192},      {16384, 4, 0, 4, 8192},      {4, 16384, 0, 4, 16384},
      {333, 777, 0, 4, 32768},     {2000, 2000, 0, 4, 262144},  {100, 100, 100, 4, 98304},
      {33, 33, 33, 4, 8192},       {64, 64, 64, 4, 16384},      {1, 1000, 3, 4, 4096},
      {500, 500, 5, 4, 131072},
  };
  for (const auto& each : seen) {
    cl_image_desc image{};
    image.image_type = each.depth > 0 ? kImage3d : kImage2d;
    image.image_width = each.width;
    image.image_height = each.height;
    image.image_depth = each.depth;
    const cl_uint float_or_byte = each.element == 16 ? 0x10DE : 0x10D2;
    const uint64_t kib = (image_bytes({0x10B5, float_or_byte}, image) + 1023) / 1024;
    // As many as fit share a chunk of 2 MiB.
    const uint64_t chunks =
        kib > 1024 ? kImages * ((kib + 2047) / 2048) : (kImages + 2048 / kib - 1) / (2048 / kib);
    EXPECT_EQ(chunks * 2048, each.taken_kib)
        << each.width << " x " << each.height << " x " << each.depth;
  }
}

TEST(OpenclImageSize, DoesNotWrapAround) {
  cl_image_desc image{};
  image.image_width = image.image_height = SIZE_MAX;
  EXPECT_EQ(image_bytes({0x10B5, 0x10DE}, image), UINT64_MAX);
}

}  // namespace
}  // namespace fracgpu::opencl
