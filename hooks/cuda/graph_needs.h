// How much memory a graph's allocations need, found from its nodes and edges.
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
};

}  // namespace fracgpu::cuda
