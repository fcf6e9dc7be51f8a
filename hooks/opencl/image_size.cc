// The size of images in device memory; see image_size.h.
#include "hooks/opencl/image_size.h"

#include <algorithm>
#include <bit>

namespace fracgpu::opencl {
namespace {

// The number of channels of an order. An element has at most four channels.
uint64_t channels_of(cl_uint order) {
  switch (order) {
    case 0x10B0:  // CL_R
    case 0x10B1:  // CL_A
    case 0x10B8:  // CL_INTENSITY
    case 0x10B9:  // CL_LUMINANCE
    case 0x10BD:  // CL_DEPTH
      return 1;
    case 0x10B2:  // CL_RG
    case 0x10B3:  // CL_RA
    case 0x10BA:  // CL_Rx
      return 2;
    default:
      return 4;
  }
}

uint64_t channel_bytes(cl_uint type) {
  switch (type) {
    case 0x10D0:  // CL_SNORM_INT8
    case 0x10D2:  // CL_UNORM_INT8
    case 0x10D7:  // CL_SIGNED_INT8
    case 0x10DA:  // CL_UNSIGNED_INT8
      return 1;
    case 0x10D1:  // CL_SNORM_INT16
    case 0x10D3:  // CL_UNORM_INT16
    case 0x10D8:  // CL_SIGNED_INT16
    case 0x10DB:  // CL_UNSIGNED_INT16
    case 0x10DD:  // CL_HALF_FLOAT
      return 2;
    default:
      return 4;
  }
}

uint64_t round_up(uint64_t value, uint64_t step) {
  uint64_t sum = 0;
  return __builtin_add_overflow(value, step - 1, &sum) ? UINT64_MAX : sum - sum % step;
}

uint64_t product(uint64_t a, uint64_t b) {
  uint64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? UINT64_MAX : result;
}

// Rounds up to whole blocks. A block is `step` times a power of two: the least that holds `size`,
// but at most `most`.
uint64_t round_to_block(uint64_t size, uint64_t step, uint64_t most) {
  const uint64_t rounded = round_up(size, step);
  return rounded >= most ? round_up(size, most) : std::bit_ceil(rounded / step) * step;
}

}  // namespace

// Tiles of 64 bytes by 8 rows, in blocks of up to 16 tiles in height or up to 16 slices. By the
// kernel's count of 34 sizes on libcuda 535.261.03.
uint64_t image_bytes(const cl_image_format& format, const cl_image_desc& description) {
  constexpr uint64_t kTileBytes = 64, kTileRows = 8, kBlockRows = 128, kBlockSlices = 16;
  const uint64_t element =
      channels_of(format.image_channel_order) * channel_bytes(format.image_channel_data_type);
  const uint64_t row = round_up(product(description.image_width, element), kTileBytes);
  const uint64_t height = std::max<uint64_t>(description.image_height, 1);
  const bool is_deep = description.image_type == kImage3d && description.image_depth > 1;
  const uint64_t rows =
      is_deep ? round_up(height, kTileRows) : round_to_block(height, kTileRows, kBlockRows);
  const uint64_t slices = is_deep ? round_to_block(description.image_depth, 1, kBlockSlices)
                                  : std::max<uint64_t>(description.image_array_size, 1);
  return product(product(row, rows), slices);
}

}  // namespace fracgpu::opencl
