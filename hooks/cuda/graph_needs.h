// How much memory a graph needs, found from its nodes and edges.
#pragma once

#include <cstdint>

#include "hooks/cuda/hook.h"
#include "shim/tracking/graph_table.h"

namespace fracgpu::cuda {

struct GraphNeeds {
  // Asks the driver: whoever calls does so on his own account (OwnCalls). Children count as if they
  // ran beside everything else.
  explicit GraphNeeds(CUgraph graph);

  uint64_t units[GraphTable::kMaxDevices] = {};  // at once, by device
  bool frees_all = true;                         // all that it allocates
  // Nodes that launch a kernel; and branches, by which the driver lets some of those run beside
  // others: a chain is one branch.
  uint64_t kernels = 0, branches = 0;

  // The most that the driver takes for the kernels when the graph is instantiated, in bytes.
  uint64_t instantiated_bytes() const;
};

}  // namespace fracgpu::cuda
