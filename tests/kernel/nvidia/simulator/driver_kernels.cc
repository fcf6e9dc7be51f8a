// libcuda copies and fills small pieces with kernels of its own. They are the only kernels whose
// effect is played: memory that a program has copied or filled must have that content. They are
// known by where they lie in the image of code that libcuda 535.261.03 loads for sm_89, and their
// parameters were seen in their constant buffers. Of another version, none is known, and such
// copies do nothing.
#include "diagnostics.h"
#include "kernel.h"
#include "page_tables.h"

namespace rmsim {
namespace {

// The constant buffer of a launch, as the driver lays it out.
struct Constants {
  uint32_t block[3], grid[3];
};
constexpr uint64_t kParameters = 0x160;

}  // namespace

// They lie in the second chunk that is allocated after the one for the image.
void note_allocation(Memory& memory, uint64_t asked) {
  constexpr uint64_t kImage = 0x38f0800, kChunk = 2 << 20;
  static int chunks_until = 0;
  if (asked == kImage) {
    chunks_until = 2;
  } else if (asked == kChunk && chunks_until != 0 && --chunks_until == 0) {
    memory.holds_driver_kernels = true;
  }
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
  switch (offset) {
    case 0x39200:  // the source is not aligned as the target is
    case 0x3a000:
      return gpu_copy(p[0], p[1], threads * 16);
    case 0x37100:
      return gpu_copy(p[0], p[1], p[2] * 4);
    case 0x38700:
      return gpu_copy(p[0], p[1], p[2]);
    case 0x37c00:  // the unaligned ends, on both sides of what another kernel copies
      gpu_copy(p[0], p[1], p[2]);
      return gpu_copy(p[0] + p[2] + p[3], p[1] + p[2] + p[3], threads - p[2]);
    case 0x35000:
      return gpu_copy(p[0] - p[2], p[1] - p[2], p[2] + p[3] * 4 + p[4]);
    case 0x44200:  // words
    case 0x44e00:  // bytes
      for (uint64_t row = 0; row < rows; ++row) {
        const auto value = static_cast<uint32_t>(p[1]);
        const uint64_t bytes = offset == 0x44200 ? p[2] * 4 : p[2];
        gpu_fill(p[0] + row * p[3], &value, 4, bytes / 4);
        gpu_fill(p[0] + row * p[3] + bytes / 4 * 4, &value, 1, bytes % 4);
      }
      return;
    default:
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
