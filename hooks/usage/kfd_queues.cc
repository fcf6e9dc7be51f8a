// Source of the sizes: libhsakmt (src/queues.c) for save areas, which holds from ROCm 5.2 to the
// newest, and ROCr (GpuAgent::QueueCreate) for scratch memory.
#include "hooks/usage/kfd_queues.h"

#include <algorithm>

#include "hooks/usage/kfd_topology.h"

namespace fracgpu::kfd {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t in_pages(uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

// Versions of the device's instruction set as KFD writes them, major * 10000 + minor * 100 + step.
constexpr uint64_t kGfx908 = 90008, kGfx90a = 90010, kGfx90c = 90012, kGfx950 = 90500,
                   kGfx10 = 100100, kGfx11 = 110000, kGfx125 = 120500;

// A line that is not there has the value of old kernels, which lack it.
struct Properties {
  uint64_t simds = 0, simds_per_cu = 0, xccs = 1, version = 0, capability = 0;
  uint64_t lds_kib = 64, arrays = 0, arrays_per_engine = 1, waves_per_simd = 0;
  uint64_t published_size = 0;  // of one XCC's area, but for what the debugger keeps

  bool read(const char* device_key) {
    const Property wanted[] = {{"simd_count", &simds},
                               {"simd_per_cu", &simds_per_cu},
                               {"num_xcc", &xccs},
                               {"gfx_target_version", &version},
                               {"capability", &capability},
                               {"lds_size_in_kb", &lds_kib},
                               {"array_count", &arrays},
                               {"simd_arrays_per_engine", &arrays_per_engine},
                               {"max_waves_per_simd", &waves_per_simd},
                               {"cwsr_size", &published_size}};
    if (!read_properties(device_key, wanted)) return false;
    xccs = std::max<uint64_t>(xccs, 1);
    arrays_per_engine = std::max<uint64_t>(arrays_per_engine, 1);
    return simds > 0 && simds_per_cu > 0;
  }

  uint64_t cus() const { return simds / simds_per_cu; }
  uint64_t cus_per_xcc() const { return cus() / xccs; }
};

// Of one compute unit. Of a generation that is not known yet, as much as any known one has.
uint64_t vector_registers(uint64_t version) {
  const bool large = (version >= kGfx908 && version <= kGfx90a) ||
                     (version > kGfx90c && version <= kGfx950) || version >= kGfx125;
  if (large) return 512 << 10;
  // Older runtimes count 256 KiB for the smaller chips of gfx11.
  return version >= kGfx11 ? 384 << 10 : 256 << 10;
}

uint64_t waves(const Properties& device) {
  const uint64_t cus = device.cus_per_xcc();
  if (device.version >= kGfx125) return cus * device.simds_per_cu * device.waves_per_simd;
  if (device.version >= kGfx10) return cus * 32;
  return std::min(cus * 40, device.arrays / device.arrays_per_engine * 512);
}

}  // namespace

uint64_t save_area_bytes(const char* device_key) {
  constexpr uint64_t kSvmSupported = 1 << 27;  // of `capability`
  Properties device;
  if (!device.read(device_key) || (device.capability & kSvmSupported) == 0) return 0;
  const bool newest = device.version >= kGfx125;
  const uint64_t scalar_registers = newest ? 32 << 10 : 16 << 10;
  const uint64_t hardware = newest ? device.waves_per_simd * device.simds_per_cu * 512 : 4 << 10;
  const uint64_t header = 64, stack_of_wave = device.version >= kGfx10 ? 12 : 8, debugger = 32;
  const uint64_t of_cu =
      vector_registers(device.version) + scalar_registers + (device.lds_kib << 10) + hardware;
  const uint64_t worked_out =
      in_pages(header + waves(device) * stack_of_wave) + in_pages(device.cus_per_xcc() * of_cu);
  const uint64_t saved = device.published_size != 0 ? device.published_size : worked_out;
  return in_pages((saved + waves(device) * debugger + 64) * device.xccs);
}

uint64_t scratch_bytes(const char* device_key, uint64_t bytes_per_thread) {
  constexpr uint64_t kWavesPerCu = 32, kThreadsPerWave = 64;
  Properties device;
  if (bytes_per_thread == 0 || !device.read(device_key)) return 0;
  return bytes_per_thread * kThreadsPerWave * kWavesPerCu * device.cus();
}

}  // namespace fracgpu::kfd
