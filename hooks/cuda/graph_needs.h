// How much memory a graph needs, found from its nodes and edges.
#pragma once

#include <cstdint>

#include "hooks/cuda/hook.h"
#include "shim/tracking/graph_table.h"

namespace fracgpu::cuda {

struct GraphNeeds {
  // Queries the driver, so the caller must hold an OwnCalls. Child graphs count as if they ran
  // beside everything else.
  explicit GraphNeeds(CUgraph graph);

  uint64_t units[GraphTable::kMaxDevices] = {};  // at once, by device
  bool frees_all = true;                         // frees all that it allocates
  // The number of nodes that launch a kernel, and of branches. The driver lets branches run side by
  // side; a chain is one branch.
  uint64_t kernels = 0, branches = 0;

  // The most that the driver takes for the kernels at instantiation, in bytes.
  uint64_t instantiated_bytes() const;
};

}  // namespace fracgpu::cuda
