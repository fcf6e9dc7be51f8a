// What arrays take. Each plane of each level and layer is rows of cells, a row padded to 64 bytes
// and the rows to a multiple of 8; the sum is rounded up to 64 KiB. A cell is one element, one
// block of a compressed format, or the elements that share a sample of chroma.
#include "sim/cuda/format.h"

#include <algorithm>
#include <bit>

#include "sim/cuda/version.h"

namespace sim {
namespace {

constexpr uint64_t kRowBytes = 64;
constexpr uint64_t kRows = 8;
constexpr uint64_t kLongest = 131072;  // elements along one side
constexpr uint64_t kDeepest = 16384;

struct Plane {
  uint8_t bytes;         // of a cell
  uint8_t across, down;  // elements in a cell
};

struct Format {
  int first, last;   // codes
  bool per_channel;  // of which the caller says how many: 1, 2 or 4
  Plane plane[3];
};

constexpr Format kFormats[] = {
    {0x01, 0x01, true, {{1, 1, 1}}},  // 8, 16 and 32 bits, unsigned, signed, and floating point
    {0x02, 0x02, true, {{2, 1, 1}}},
    {0x03, 0x03, true, {{4, 1, 1}}},
    {0x08, 0x08, true, {{1, 1, 1}}},
    {0x09, 0x09, true, {{2, 1, 1}}},
    {0x0a, 0x0a, true, {{4, 1, 1}}},
    {0x10, 0x10, true, {{2, 1, 1}}},
    {0x20, 0x20, true, {{4, 1, 1}}},
    {0x50, 0x50, false, {{4, 1, 1}}},             // 10 bits of each colour and 2
    {0x91, 0x92, false, {{8, 4, 4}}},             // BC1
    {0x93, 0x96, false, {{16, 4, 4}}},            // BC2, BC3
    {0x97, 0x98, false, {{8, 4, 4}}},             // BC4
    {0x99, 0x9a, false, {{16, 4, 4}}},            // BC5
    {0x9b, 0x9c, false, {{16, 4, 4}}},            // BC6H
    {0x9d, 0x9e, false, {{16, 4, 4}}},            // BC7
    {0x9f, 0x9f, false, {{2, 1, 1}, {4, 2, 2}}},  // P010
    {0xa1, 0xa1, false, {{2, 1, 1}, {4, 2, 2}}},  // P016
    {0xa2, 0xa2, false, {{1, 1, 1}, {2, 2, 1}}},  // NV16
    {0xa3, 0xa4, false, {{2, 1, 1}, {4, 2, 1}}},  // P210, P216
    {0xa5, 0xa5, false, {{4, 2, 1}}},             // YUY2
    {0xa6, 0xa7, false, {{8, 2, 1}}},             // Y210, Y216
    {0xa8, 0xa9, false, {{4, 1, 1}}},             // AYUV, Y410
    {0xb0, 0xb0, false, {{1, 1, 1}, {2, 2, 2}}},  // NV12
    {0xb1, 0xb1, false, {{8, 1, 1}}},             // Y416
    {0xb2, 0xb2, false, {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}},
    {0xb3, 0xb3, false, {{2, 1, 1}, {2, 1, 1}, {2, 1, 1}}},
    {0xb4, 0xb4, false, {{1, 1, 1}, {2, 1, 1}}},
    {0xb5, 0xb5, false, {{2, 1, 1}, {4, 1, 1}}},
    {0xc0, 0xc0, false, {{1, 1, 1}}},  // normalised 8 and 16 bits, unsigned and signed
    {0xc1, 0xc1, false, {{2, 1, 1}}},
    {0xc2, 0xc2, false, {{4, 1, 1}}},
    {0xc3, 0xc3, false, {{2, 1, 1}}},
    {0xc4, 0xc4, false, {{4, 1, 1}}},
    {0xc5, 0xc5, false, {{8, 1, 1}}},
    {0xc6, 0xc6, false, {{1, 1, 1}}},
    {0xc7, 0xc7, false, {{2, 1, 1}}},
    {0xc8, 0xc8, false, {{4, 1, 1}}},
    {0xc9, 0xc9, false, {{2, 1, 1}}},
    {0xca, 0xca, false, {{4, 1, 1}}},
    {0xcb, 0xcb, false, {{8, 1, 1}}},
};

const Format* format_of(int code) {
  for (const Format& format : kFormats) {
    if (code >= format.first && code <= format.last) return &format;
  }
  return nullptr;
}

uint64_t cell_bytes(const Format& format, const Plane& plane, unsigned channels) {
  return format.per_channel ? uint64_t{plane.bytes} * channels : plane.bytes;
}

uint64_t up(uint64_t number, uint64_t step) {
  return (number + step - 1) / step * step;
}

}  // namespace

bool Shape::set(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned wanted_levels) {
  form = descriptor;
  const Format* format = format_of(form.Format);
  if (format == nullptr || (form.Flags & ~kKnownArrayFlags) != 0) return false;
  const unsigned channels = form.NumChannels;
  // The other formats say it themselves, whatever the caller does.
  if (channels < 1 || channels > 4 || (format->per_channel && channels == 3)) return false;
  if (form.Width == 0 || form.Width > kLongest || form.Height > kLongest || form.Depth > kDeepest)
    return false;
  if (flag(CUDA_ARRAY3D_DEFERRED_MAPPING) && driver_version() < 11060) return false;
  const bool layered = flag(CUDA_ARRAY3D_LAYERED);
  if (layered ? form.Depth == 0 : form.Depth != 0 && form.Height == 0) return false;
  if (flag(CUDA_ARRAY3D_CUBEMAP) &&
      (form.Width != form.Height || form.Depth % 6 != 0 || (!layered && form.Depth != 6)))
    return false;
  const bool sparse = flag(CUDA_ARRAY3D_SPARSE);
  if (sparse && (flag(CUDA_ARRAY3D_DEFERRED_MAPPING) || format->plane[1].bytes != 0)) return false;
  const Extent whole = extent(0);
  const auto possible =
      static_cast<unsigned>(std::bit_width(std::max({whole.width, whole.height, whole.depth})));
  levels = std::clamp(wanted_levels, 1U, possible);
  return true;
}

bool Shape::solid() const {
  return form.Depth != 0 && !flag(CUDA_ARRAY3D_LAYERED) && !flag(CUDA_ARRAY3D_CUBEMAP);
}

uint64_t Shape::layers() const {
  return form.Depth == 0 || solid() ? 1 : form.Depth;
}

Extent Shape::extent(unsigned level) const {
  const auto side = [level](uint64_t size) { return std::max<uint64_t>(size >> level, 1); };
  return {side(form.Width), side(form.Height), solid() ? side(form.Depth) : 1};
}

uint64_t Shape::level_bytes(unsigned level) const {
  const Format& format = *format_of(form.Format);
  const Extent size = extent(level);
  uint64_t sum = 0;
  for (const Plane& plane : format.plane) {
    if (plane.bytes == 0) continue;
    const uint64_t row =
        up(size.width, plane.across) / plane.across * cell_bytes(format, plane, form.NumChannels);
    const uint64_t rows = up(size.height, plane.down) / plane.down;
    sum += up(row, kRowBytes) * up(rows, kRows) * size.depth;
  }
  return sum;
}

uint64_t Shape::bytes() const {
  uint64_t sum = 0;
  for (unsigned level = 0; level < levels; ++level) sum += level_bytes(level) * layers();
  return up(sum, kTile);
}

// As near a square or a cube as powers of two allow, longest across.
Extent Shape::tile() const {
  const Format& format = *format_of(form.Format);
  const Plane& plane = format.plane[0];
  const uint64_t cells = kTile / cell_bytes(format, plane, form.NumChannels);
  const int power = std::countr_zero(cells);
  const auto side = [](int exponent, uint64_t elements) { return elements << exponent; };
  if (solid()) {
    return {side((power + 2) / 3, plane.across), side((power + 1) / 3, plane.down),
            side(power / 3, 1)};
  }
  if (form.Height == 0) return {side(power, plane.across), 1, 1};
  return {side((power + 1) / 2, plane.across), side(power / 2, plane.down), 1};
}

unsigned Shape::tail_level() const {
  const Extent unit = tile();
  for (unsigned level = 0; level < levels; ++level) {
    const Extent size = extent(level);
    if (size.width < unit.width || size.height < unit.height || size.depth < unit.depth)
      return level;
  }
  return levels;
}

uint64_t Shape::tail_bytes() const {
  uint64_t sum = 0;
  for (unsigned level = tail_level(); level < levels; ++level) sum += level_bytes(level);
  return up(sum, kTile);
}

}  // namespace sim
