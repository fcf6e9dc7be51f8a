// libcuda copies and fills small pieces with kernels of its own. They are the only kernels whose
// effect is played: memory that a program has copied or filled must have that content. They are
// known by where they lie in the image of code that libcuda 535.261.03 and 550.163.01 load for
// sm_89, and their parameters were seen in their constant buffers. Of another version, none is
// known, and such copies do nothing.
#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>

#include "diagnostics.h"
#include "kernel.h"
#include "page_tables.h"

namespace rmsim {
namespace {

enum class Kernel {
  copy_in_16_bytes,
  copy_to_aligned,  // the source is not aligned as the target is
  copy_words,
  copy_bytes,
  copy_ends,  // the unaligned ends, on both sides of what another kernel copies
  copy_whole,
  fill_words,
  fill_bytes,
  unknown
};

// Where it lies in its chunk.
struct Place {
  Kernel kernel;
  uint64_t in_535, in_550;
};
constexpr Place kPlaces[] = {
    {Kernel::copy_in_16_bytes, 0x3a000, 0x44e00}, {Kernel::copy_to_aligned, 0x39200, 0x44000},
    {Kernel::copy_words, 0x37100, 0x41f00},       {Kernel::copy_bytes, 0x38700, 0x43500},
    {Kernel::copy_ends, 0x37c00, 0x42a00},        {Kernel::copy_whole, 0x35000, 0x3ff00},
    {Kernel::fill_words, 0x44200, 0x4f200},       {Kernel::fill_bytes, 0x44e00, 0x4fe00},
};

bool driver_is_535() {
  return std::string_view(accounting.driver()).starts_with("535.");
}

Kernel kernel_at(uint64_t offset) {
  const auto* const place = std::find_if(
      std::begin(kPlaces), std::end(kPlaces),
      [&](const Place& each) { return offset == (driver_is_535() ? each.in_535 : each.in_550); });
  return place != std::end(kPlaces) ? place->kernel : Kernel::unknown;
}

// The constant buffer of a launch, as the driver lays it out.
struct Constants {
  uint32_t block[3], grid[3];
};
constexpr uint64_t kParameters = 0x160;

}  // namespace

// They lie in the second chunk that is allocated after the one for the image; with 550, in the one
// before it.
void note_allocation(const MemoryPtr& memory, uint64_t asked) {
  constexpr uint64_t kImage = 0x38f0800, kChunk = 2 << 20;
  static int chunks_until = 0;
  static std::weak_ptr<Memory> chunk_before;
  if (asked == kImage && driver_is_535()) {
    chunks_until = 2;
  } else if (asked == kImage) {
    if (const MemoryPtr before = chunk_before.lock()) before->holds_driver_kernels = true;
  } else if (asked == kChunk && chunks_until != 0 && --chunks_until == 0) {
    memory->holds_driver_kernels = true;
  }
  if (asked == kChunk) chunk_before = memory;
}

void run_driver_kernel(uint64_t constants, uint64_t program) {
  uint64_t offset = 0;
  const MemoryPtr code = page_tables::memory_at(program, offset);
  if (code == nullptr || !code->holds_driver_kernels) return;
  const auto* launch =
      reinterpret_cast<const Constants*>(gpu_bytes(constants, kParameters + 5 * sizeof(uint64_t)));
  if (launch == nullptr) return;
  const auto* p =
      reinterpret_cast<const uint64_t*>(reinterpret_cast<const char*>(launch) + kParameters);
  const uint64_t threads = static_cast<uint64_t>(launch->block[0]) * launch->grid[0];
  const uint64_t rows = static_cast<uint64_t>(launch->block[1]) * launch->grid[1];
  const Kernel kernel = kernel_at(offset);
  switch (kernel) {
    case Kernel::copy_to_aligned:
    case Kernel::copy_in_16_bytes:
      return gpu_copy(p[0], p[1], threads * 16);
    case Kernel::copy_words:
      return gpu_copy(p[0], p[1], p[2] * 4);
    case Kernel::copy_bytes:
      return gpu_copy(p[0], p[1], p[2]);
    case Kernel::copy_ends:
      gpu_copy(p[0], p[1], p[2]);
      return gpu_copy(p[0] + p[2] + p[3], p[1] + p[2] + p[3], threads - p[2]);
    case Kernel::copy_whole:
      return gpu_copy(p[0] - p[2], p[1] - p[2], p[2] + p[3] * 4 + p[4]);
    case Kernel::fill_words:
    case Kernel::fill_bytes:
      for (uint64_t row = 0; row < rows; ++row) {
        const auto value = static_cast<uint32_t>(p[1]);
        const uint64_t bytes = kernel == Kernel::fill_words ? p[2] * 4 : p[2];
        gpu_fill(p[0] + row * p[3], &value, 4, bytes / 4);
        gpu_fill(p[0] + row * p[3] + bytes / 4 * 4, &value, 1, bytes % 4);
      }
      return;
    case Kernel::unknown:
      trace(
          "  unknown kernel of the driver at %llx: %llu threads, parameters %llx %llx %llx %llx "
          "%llx",
          static_cast<unsigned long long>(offset), static_cast<unsigned long long>(threads),
          static_cast<unsigned long long>(p[0]), static_cast<unsigned long long>(p[1]),
          static_cast<unsigned long long>(p[2]), static_cast<unsigned long long>(p[3]),
          static_cast<unsigned long long>(p[4]));
  }
}

}  // namespace rmsim
