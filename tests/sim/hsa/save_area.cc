// By libhsakmt (src/queues.c) and ROCr (GpuAgent::QueueCreate). A save area holds the registers and
// the local memory of all of an XCC's compute units, the control stack of its waves and what the
// debugger keeps of each; there is one for each XCC. It is a range of shared virtual memory that is
// prefetched to the device, or host memory where the kernel has no such ranges.
#include "sim/hsa/save_area.h"

#include <algorithm>

namespace sim {
namespace {

constexpr uint64_t kPage = 4096;

uint64_t in_pages(uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

struct Chip {
  uint64_t vector_registers;  // bytes of a compute unit
  uint64_t waves_per_cu, bytes_per_wave;
  uint32_t xccs;
};

Chip chip_of(const DeviceRow& device) {
  switch (device.gfx_target_version / 100) {
    case 904:  // gfx94x
    case 905:  // gfx950
      return {512 << 10, 40, 8, std::max(8 / device.partitions, 1U)};
    case 900:  // gfx90a; gfx900 and gfx906 have half of the registers
      return {device.gfx_target_version == 90010 ? 512u << 10 : 256u << 10, 40, 8, 1};
    default:  // gfx1100
      return {384 << 10, 32, 12, 1};
  }
}

}  // namespace

uint64_t save_area_bytes(const DeviceRow& device) {
  if (device.svm == 0) return 0;
  constexpr uint64_t kScalarRegisters = 16 << 10, kHardware = 4 << 10, kHeader = 40,
                     kDebuggerPerWave = 32;
  const uint64_t local_memory = device.gfx_target_version == 90500 ? 160 << 10 : 64 << 10;
  const Chip chip = chip_of(device);
  const uint64_t cus = device.multiprocessors / chip.xccs;
  // A shader engine of the older generations has no more than 512.
  const uint64_t engines = chip.xccs == 8 ? 4 : 8;
  const uint64_t waves = chip.bytes_per_wave == 8 ? std::min(cus * chip.waves_per_cu, engines * 512)
                                                  : cus * chip.waves_per_cu;
  const uint64_t saved =
      in_pages(kHeader + waves * chip.bytes_per_wave + 8) +
      in_pages(cus * (chip.vector_registers + kScalarRegisters + local_memory + kHardware));
  const uint64_t of_one = device.cwsr_size != 0 ? device.cwsr_size : saved;
  return in_pages(chip.xccs * (of_one + waves * kDebuggerPerWave));
}

uint64_t scratch_bytes(const DeviceRow& device, uint32_t per_thread) {
  constexpr uint64_t kWavesPerCu = 32, kThreadsPerWave = 64, kGrain = 16;
  return (per_thread + kGrain - 1) / kGrain * kGrain * kWavesPerCu * kThreadsPerWave *
         device.multiprocessors;
}

}  // namespace sim
