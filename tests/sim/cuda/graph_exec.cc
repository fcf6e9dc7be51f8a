// Executable graphs: made from a graph, changed to follow another one, and run. A graph with memory
// nodes has one execution at a time, as the vendor documents. A launch is finished when it returns.
#include <algorithm>
#include <map>
#include <set>

#include "sim/cuda/driver.h"
#include "sim/cuda/graph_table.h"

namespace sim {
namespace {

using Step = GraphExec::Step;

void flatten(const Graph& graph, size_t* graphs, std::vector<Step>* steps) {
  const size_t number = (*graphs)++;
  for (const auto& node : graph.nodes) {
    Step step{node->type, number, {}, node->memory};
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (std::find(node->after.begin(), node->after.end(), graph.nodes[i].get()) !=
          node->after.end())
        step.after.push_back(i);
    }
    steps->push_back(std::move(step));
    if (node->child != nullptr) flatten(*node->child, graphs, steps);
  }
}

std::vector<Step> steps_of(const Graph& graph) {
  size_t graphs = 0;
  std::vector<Step> steps;
  flatten(graph, &graphs, &steps);
  return steps;
}

const GraphNode* node_at(const Graph& graph, size_t* place) {
  for (const auto& node : graph.nodes) {
    if ((*place)-- == 0) return node.get();
    if (node->child == nullptr) continue;
    if (const GraphNode* found = node_at(*node->child, place)) return found;
  }
  return nullptr;
}

}  // namespace

CUresult Graphs::instantiate(Graph* graph, unsigned long long flags, GraphExec** out) {
  if (graph->parent != nullptr || graph->capturing) return CUDA_ERROR_INVALID_VALUE;
  const bool memory = graph->has_memory();
  if (memory && graph->exec != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  auto exec = std::make_unique<GraphExec>();
  exec->handle = new_handle<CUgraphExec>();
  exec->flags = flags;
  exec->steps = steps_of(*graph);
  if (memory) {
    graph->exec = exec->handle;
    exec->source = graph->handle;
  }
  *out = exec.get();
  execs_[exec->handle] = std::move(exec);
  return CUDA_SUCCESS;
}

CUresult Graphs::update(GraphExec* exec, Graph* graph, int* result, GraphNode** where) {
  const bool memory = graph->has_memory();
  *where = nullptr;
  *result = CU_GRAPH_EXEC_UPDATE_ERROR;
  if (graph->parent != nullptr || graph->capturing ||
      (memory && graph->exec != nullptr && graph->exec != exec->handle))
    return CUDA_ERROR_INVALID_VALUE;
  std::vector<Step> steps = steps_of(*graph);
  const auto fail = [&](int reason, size_t place) {
    *result = reason;
    *where = const_cast<GraphNode*>(node_at(*graph, &place));
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  };
  if (steps.size() != exec->steps.size())
    return fail(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& now = exec->steps[i];
    const Step& next = steps[i];
    if (now.graph != next.graph || now.after != next.after)
      return fail(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, i);
    if (now.type != next.type) return fail(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, i);
    if (now.memory != nullptr && now.memory->device != next.memory->device)
      return fail(CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, i);
    // What the last launch has left behind would be lost to this execution.
    if (now.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && now.memory != next.memory && now.memory->live)
      return fail(CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, i);
  }
  if (Graph* before = find(exec->source)) before->exec = nullptr;
  exec->source = memory ? graph->handle : nullptr;
  if (memory) graph->exec = exec->handle;
  exec->steps = std::move(steps);
  *result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  return CUDA_SUCCESS;
}

// What it has left behind stays until the program frees it.
void Graphs::destroy(GraphExec* exec) {
  if (Graph* source = find(exec->source)) source->exec = nullptr;
  execs_.erase(exec->handle);
}

CUresult Graphs::run(GraphExec* exec, bool only_upload) {
  GraphMemory& memory = Driver::get().graph_memory;
  const bool frees_first = (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  std::set<GraphAllocation*> own;
  for (const Step& step : exec->steps) {
    if (step.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) own.insert(step.memory.get());
  }
  if (!only_upload) {
    for (const Step& step : exec->steps) {
      const bool wrong = step.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC
                             ? step.memory->live && !frees_first
                             : step.type == CU_GRAPH_NODE_TYPE_MEM_FREE &&
                                   own.count(step.memory.get()) == 0 && !step.memory->live;
      if (wrong) return CUDA_ERROR_INVALID_VALUE;
    }
    for (GraphAllocation* allocation : own) {
      if (allocation->live) memory.end(allocation);
    }
  }
  std::map<int, uint64_t> need;
  for (GraphAllocation* allocation : own) {
    if (!allocation->live) need[allocation->device] += allocation->bytes();
  }
  for (const auto& [device, bytes] : need) {
    if (!memory.prepare(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (only_upload) return CUDA_SUCCESS;
  // All at once, as if every node ran beside every other: the most that a launch can need.
  for (const Step& step : exec->steps) {
    if (step.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) memory.begin(step.memory);
  }
  for (const Step& step : exec->steps) {
    if (step.type == CU_GRAPH_NODE_TYPE_MEM_FREE && step.memory->live)
      memory.end(step.memory.get());
  }
  return CUDA_SUCCESS;
}

}  // namespace sim
