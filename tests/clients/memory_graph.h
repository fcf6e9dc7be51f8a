// A graph that allocates and frees.
#pragma once

#include <cstdint>

#include "random/actor.h"

namespace client {

// Makes one that can be launched and takes so many bytes while it runs. 0, or errors together.
inline int make_memory_graph(CUgraphExec* exec, uint64_t bytes) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr, freed = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS parameters = {};
  parameters.poolProps.allocType = 1;
  parameters.poolProps.location = {.type = kLocationDevice, .id = 0};
  parameters.bytesize = bytes;
  const CUgraphNode* const nothing = nullptr;
  const CUgraphNode* const after = &node;
  int rc = call("cuGraphCreate", &graph, 0u);
  rc |= call("cuGraphAddMemAllocNode", &node, graph, nothing, size_t{0}, &parameters);
  rc |= call("cuGraphAddMemFreeNode", &freed, graph, after, size_t{1}, parameters.dptr);
  return rc | call("cuGraphInstantiateWithFlags", exec, graph, 0ull);
}

}  // namespace client
