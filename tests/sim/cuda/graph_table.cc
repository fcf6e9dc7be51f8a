// The table of graphs. Restrictions on those with memory nodes are the ones that the vendor
// documents: they are not cloned, and are children only of a parent that takes them over.
#include "sim/cuda/graph_table.h"

#include <algorithm>
#include <map>

#include "sim/cuda/driver.h"

namespace sim {

bool Graph::has_memory() const {
  return std::any_of(nodes.begin(), nodes.end(), [](const auto& node) {
    return node->memory != nullptr || (node->child != nullptr && node->child->has_memory());
  });
}

Graph* Graphs::create() {
  auto graph = std::make_unique<Graph>();
  graph->handle = handle_of<CUgraph>(graph.get());
  graph->id = next_id_++;
  return (graphs_[graph->handle] = std::move(graph)).get();
}

bool Graphs::destroy(Graph* graph) {
  if (graph->parent != nullptr || graph->capturing) return false;
  for (const auto& node : graph->nodes) {
    nodes_.erase(node->handle);
    if (node->memory != nullptr) {
      // What outlives the graph is no longer its own; a free node that goes counts no more.
      GraphAllocation& memory = *node->memory;
      if (memory.freed_by == graph->id && memory.owner != graph->id) memory.freed_by = 0;
    }
    if (node->child != nullptr) {
      node->child->parent = nullptr;
      destroy(node->child);
    }
  }
  part(graph->handle, graph->exec);
  graphs_.erase(graph->handle);
  return true;
}

void Graphs::part(CUgraph graph, CUgraphExec exec) {
  if (GraphExec* const known = find(exec)) known->source = nullptr;
  if (Graph* const known = find(graph)) known->exec = nullptr;
}

Graph* Graphs::clone(const Graph& graph) {
  Graph* copy = create();
  std::map<const GraphNode*, GraphNode*> twin;
  for (const auto& node : graph.nodes) {
    std::vector<GraphNode*> after;
    for (const GraphNode* before : node->after) after.push_back(twin[before]);
    twin[node.get()] = add(copy, node->type, after);
    if (node->child == nullptr) continue;
    twin[node.get()]->child = clone(*node->child);
    twin[node.get()]->child->parent = copy;
  }
  return copy;
}

Graph* Graphs::find(CUgraph handle) {
  const auto found = graphs_.find(handle);
  return found != graphs_.end() ? found->second.get() : nullptr;
}
GraphNode* Graphs::find(CUgraphNode handle) {
  const auto found = nodes_.find(handle);
  return found != nodes_.end() ? found->second : nullptr;
}
GraphExec* Graphs::find(CUgraphExec handle) {
  const auto found = execs_.find(handle);
  return found != execs_.end() ? found->second.get() : nullptr;
}

GraphNode* Graphs::add(Graph* graph, int type, const std::vector<GraphNode*>& after) {
  auto node = std::make_unique<GraphNode>();
  node->handle = handle_of<CUgraphNode>(node.get());
  node->type = type;
  node->graph = graph;
  node->after = after;
  nodes_[node->handle] = node.get();
  graph->nodes.push_back(std::move(node));
  return graph->nodes.back().get();
}

CUresult Graphs::add_allocation(Graph* graph, const std::vector<GraphNode*>& after,
                                CUDA_MEM_ALLOC_NODE_PARAMS* params, GraphNode** out) {
  Driver& driver = Driver::get();
  const CUmemPoolProps& props = params->poolProps;
  if (params->bytesize == 0 || props.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      props.handleTypes != CU_MEM_HANDLE_TYPE_NONE || graph->parent != nullptr ||
      props.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  if (!driver.valid(props.location.id)) return CUDA_ERROR_INVALID_DEVICE;
  const int device = driver.physical(props.location.id);
  if (params->bytesize > driver.account().total(device)) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::shared_ptr<GraphAllocation> memory = driver.graph_memory.create(*params, device);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  memory->owner = graph->id;
  params->dptr = memory->address;
  *out = add(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, after);
  (*out)->memory = memory;
  return CUDA_SUCCESS;
}

CUresult Graphs::add_free(Graph* graph, const std::vector<GraphNode*>& after, uint64_t address,
                          GraphNode** out) {
  const std::shared_ptr<GraphAllocation> memory = Driver::get().graph_memory.starting_at(address);
  // Freed in its own graph or in others, but not in both, and in one graph not twice.
  if (memory == nullptr || graph->parent != nullptr || memory->freed_by == graph->id ||
      (memory->freed_by != 0 && (memory->freed_by == memory->owner || graph->id == memory->owner)))
    return CUDA_ERROR_INVALID_VALUE;
  for (const auto& node : graph->nodes) {
    if (node->memory == memory && node->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
      return CUDA_ERROR_INVALID_VALUE;
  }
  memory->freed_by = graph->id;
  *out = add(graph, CU_GRAPH_NODE_TYPE_MEM_FREE, after);
  (*out)->memory = memory;
  return CUDA_SUCCESS;
}

CUresult Graphs::add_child(Graph* graph, const std::vector<GraphNode*>& after, Graph* child,
                           bool move, GraphNode** out) {
  if (child->parent != nullptr || child == graph || child->capturing)
    return CUDA_ERROR_INVALID_VALUE;
  if (!move && child->has_memory()) return CUDA_ERROR_NOT_SUPPORTED;
  for (const Graph* above = graph; above != nullptr; above = above->parent) {
    if (above == child) return CUDA_ERROR_INVALID_VALUE;
  }
  if (move && child->exec != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!move) child = clone(*child);
  child->parent = graph;
  *out = add(graph, CU_GRAPH_NODE_TYPE_GRAPH, after);
  (*out)->child = child;
  return CUDA_SUCCESS;
}

}  // namespace sim
