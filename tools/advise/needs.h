// The memory that a program needs on each GPU, by recordings of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/report/analysis.h"

namespace fracgpu::tools {

// One process's part.
struct ProcessNeed {
  std::string command;
  uint32_t pid = 0;
  uint64_t needed = 0, taken = 0;  // bytes; its own peaks
};

// The needs on one GPU, in one run.
struct Need {
  std::string key, name;   // of the GPU
  uint64_t physical = 0;   // bytes
  uint64_t needed = 0;     // the peak of the memory that could not have been given back
  uint64_t needed_ns = 0;  // the time of that peak
  uint64_t taken = 0;      // the peak of all memory taken
  uint64_t unnamed = 0;    // the part without an explicit request: contexts, code etc.
  uint64_t refusals = 0;
  std::vector<ProcessNeed> processes;
};

std::vector<Need> needs_of(const report::Analysis& analysis);

// Adds the margin above the need: a share of it, but at least this amount, because a driver's pools
// grow by 32 MiB and a context's size may vary a little. Rounded up to whole 16 MiB.
inline constexpr uint64_t kLeastMargin = 64u << 20;
uint64_t with_margin(uint64_t needed, double share);

// The spread over many runs on one GPU.
struct Spread {
  std::string key, name;
  uint64_t physical = 0;
  size_t runs = 0;
  uint64_t least = 0, median = 0, most = 0;  // of the needs
  uint64_t p99 = 0;                          // with fewer than 100 runs, the largest need
  uint64_t most_taken = 0;
};
std::vector<Spread> spread_of(const std::vector<std::vector<Need>>& runs);

}  // namespace fracgpu::tools
