// The differences of a second recording: `fracgpu report A B`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/recording/symbols.h"
#include "tools/report/analysis.h"
#include "tools/report/call_sites.h"

namespace fracgpu::tools::report {

struct Change {
  std::string name{};
  uint64_t before = 0, after = 0;
  uint64_t size() const { return before > after ? before - after : after - before; }
};

struct DeviceChange {
  std::string name{};
  Change taken{}, live{}, needed{}, at_end{}, refusals{};
};

// GPUs are paired by their keys, and the rest by their order, because the second run may have been
// on another machine. Call sites are paired by their names: two runs share neither addresses nor
// PIDs.
struct Comparison {
  Change duration_ns{};
  std::vector<Change> totals{};  // counts, of all GPUs
  std::vector<DeviceChange> devices{};
  // By call site, the greatest change first. In bytes, except the last.
  std::vector<Change> at_peak{}, left{}, allocated_bytes{}, allocations{};
};

// At most `top` call sites of each kind.
Comparison compare(const Analysis& before, const Analysis& after, recording::Symbols& symbols,
                   const Naming& naming, size_t top);

std::string as_text(const Comparison& comparison);
std::string as_json(const Comparison& comparison);

}  // namespace fracgpu::tools::report
