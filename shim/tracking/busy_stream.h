// A stream with queued work, after which the driver unmaps memory.
#pragma once

#include <cstdint>

namespace fracgpu {

struct BusyStream {
  enum class Outcome { waits, done, unknown };

  uint64_t number = 0;
  uint64_t epoch = 0;  // of the process's contexts
  uint16_t context = 0;
  // Asks the driver whether the work is done. Any thread may call it, without a lock. Null: there
  // is no such stream.
  Outcome (*ask)(const BusyStream&) = nullptr;

  bool operator==(const BusyStream&) const = default;
};

}  // namespace fracgpu
