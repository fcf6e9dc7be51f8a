// How much memory a graph's allocations need at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/charge/graph_order.h"

namespace fracgpu {

// A node of a graph that allocates or frees. Other nodes matter only for the order.
struct GraphStep {
  enum class Kind : uint8_t { other, allocation, release };
  uint64_t address = 0;  // that is allocated or freed
  uint64_t units = 0;    // of an allocation
  int device = -1;
  Kind kind = Kind::other;
};

// Allocations of a graph whose lifetimes do not overlap share memory (CUDA programming guide,
// "Graph Memory Nodes"). The driver chooses which of them share. This counts a released block as
// usable only from a certain allocation on: the first one that, like all later ones, is sure to
// come after the release. The result is then enough for every driver that never grows while it has
// usable memory. Two nodes without an order between them may run at once.
//
// Adds to `peaks[device]` in units. False, with nothing added, if there is not enough host memory
// for the work or the steps have no order. The caller can then use the sum of all allocations.
bool add_graph_peaks(const GraphStep* steps, size_t step_count, const GraphEdge* edges,
                     size_t edge_count, uint64_t* peaks, int devices);

}  // namespace fracgpu
