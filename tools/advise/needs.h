// How much memory of each GPU a program needs, by recordings of it.
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

// Of one GPU, in one run.
struct Need {
  std::string key, name;   // of the GPU
  uint64_t physical = 0;   // bytes
  uint64_t needed = 0;     // the peak of what could not have been given back
  uint64_t needed_ns = 0;  // when
  uint64_t taken = 0;      // the peak of all that was taken
  uint64_t unnamed = 0;    // of that: contexts, code and the like, which no call asks for by size
  uint64_t refusals = 0;
  std::vector<ProcessNeed> processes;
};

std::vector<Need> needs_of(const report::Analysis& analysis);

// The margin above what was needed: a share of it, and this much at least, because a driver's pools
// grow by 32 MiB and a context's size may differ by some. Rounded up to whole 16 MiB.
inline constexpr uint64_t kLeastMargin = 64u << 20;
uint64_t with_margin(uint64_t needed, double share);

// Of many runs on one GPU.
struct Spread {
  std::string key, name;
  uint64_t physical = 0;
  size_t runs = 0;
  uint64_t least = 0, median = 0, most = 0;  // of what was needed
  uint64_t p99 = 0;                          // of fewer than 100 runs the most
  uint64_t most_taken = 0;
};
std::vector<Spread> spread_of(const std::vector<std::vector<Need>>& runs);

}  // namespace fracgpu::tools
