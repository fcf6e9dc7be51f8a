// A stream in which the driver will unmap memory when it gets there.
#pragma once

#include <cstdint>

namespace fracgpu {

struct BusyStream {
  enum class Outcome { waits, done, unknown };

  uint64_t number = 0;  // 0: nothing waits
  uint64_t epoch = 0;   // of the process's contexts
  uint16_t context = 0;
  // Asks the driver. Any thread may do so, without a lock.
  Outcome (*ask)(const BusyStream&) = nullptr;
};

}  // namespace fracgpu
