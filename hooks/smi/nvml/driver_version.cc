// Reads the version; see driver_version.h.
#include "hooks/smi/nvml/driver_version.h"

#include <atomic>

#include "hooks/smi/nvml/library.h"

namespace fracgpu::nvml {

DriverVersion driver_version() {
  // The version once it was read; 0 before. No part needs 20 bits.
  static constinit std::atomic<uint64_t> read{0};
  constexpr int kBits = 20;
  constexpr uint64_t kPart = (uint64_t{1} << kBits) - 1;
  uint64_t word = read.load(std::memory_order_relaxed);
  char text[80];
  if (word == 0 && real::nvmlSystemGetDriverVersion(text, sizeof text) == kSuccess) {
    const DriverVersion version = version_in(text);
    word = version.major << 2 * kBits | version.minor << kBits | version.patch;
    read.store(word, std::memory_order_relaxed);
  }
  return {.major = word >> 2 * kBits, .minor = word >> kBits & kPart, .patch = word & kPart};
}

}  // namespace fracgpu::nvml
