// Random allocation and freeing from several threads, for a time or a number of steps.
// The sequence of each thread follows from the seed, so a failure can be repeated. Only success and
// "out of memory" are expected of an allocation, and only success of a free.
#pragma once

#include <cstddef>
#include <vector>

#include "driver_api.h"

namespace client {

struct StormOptions {
  double seconds = 1;
  unsigned seed = 1;
  size_t max_bytes = 0;
  int threads = 1;
  bool keep = false;
};

struct StormResult {
  unsigned long long allocations = 0, frees = 0, refused = 0;
  int bad = 0;  // the first unexpected result, or 0
  std::vector<Pointer> kept;
};

StormResult storm(const DriverApi& api, void* context, const StormOptions& options);

}  // namespace client
