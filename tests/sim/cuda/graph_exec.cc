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

// `above`: the step of the node that the graph is a child of.
void flatten(const Graph& graph, size_t* graphs, std::vector<Step>* steps,
             const size_t* above = nullptr) {
  const size_t number = (*graphs)++;
  // The steps that a node's successors run after: its own, and those of its child.
  std::vector<std::vector<size_t>> steps_of(graph.nodes.size());
  for (size_t place = 0; place < graph.nodes.size(); ++place) {
    const GraphNode& node = *graph.nodes[place];
    const size_t own = steps->size();
    Step step{node.type, number, {}, {}, node.memory};
    if (above != nullptr) step.before.push_back(*above);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (std::find(node.after.begin(), node.after.end(), graph.nodes[i].get()) == node.after.end())
        continue;
      step.after.push_back(i);
      step.before.insert(step.before.end(), steps_of[i].begin(), steps_of[i].end());
    }
    steps->push_back(std::move(step));
    if (node.child != nullptr) flatten(*node.child, graphs, steps, &own);
    for (size_t i = own; i < steps->size(); ++i) steps_of[place].push_back(i);
  }
}

// What the allocations need at once on each device, those apart that live already. One takes the
// memory of others that were freed before it on every way to it, if no other has taken that: "In a
// graph, allocations whose lifetimes do not overlap may use the same physical memory" (CUDA
// programming guide, graph memory nodes). Memory is mapped page by page, so any page will do.
std::map<int, uint64_t> needs_of(const std::vector<Step>& steps) {
  std::map<int, uint64_t> needs;
  std::map<const GraphAllocation*, uint64_t> left;       // of each that this graph made
  std::vector<std::vector<size_t>> freed(steps.size());  // steps that free, on every way to each
  for (size_t at = 0; at < steps.size(); ++at) {
    const Step& step = steps[at];
    std::set<size_t> all;
    for (const size_t before : step.before) {
      all.insert(freed[before].begin(), freed[before].end());
      if (steps[before].type == CU_GRAPH_NODE_TYPE_MEM_FREE) all.insert(before);
    }
    freed[at].assign(all.begin(), all.end());
    if (step.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || step.memory->live) continue;
    uint64_t missing = step.memory->bytes();
    left[step.memory.get()] = missing;
    for (const size_t free : freed[at]) {
      const auto found = left.find(steps[free].memory.get());
      if (found == left.end() || found->first->device != step.memory->device) continue;
      const uint64_t taken = std::min(missing, found->second);
      missing -= taken;
      found->second -= taken;
    }
    needs[step.memory->device] += missing;
  }
  return needs;
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
  exec->handle = handle_of<CUgraphExec>(exec.get());
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
  part(exec->source, exec->handle);
  exec->source = memory ? graph->handle : nullptr;
  if (memory) graph->exec = exec->handle;
  exec->steps = std::move(steps);
  *result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  return CUDA_SUCCESS;
}

// What it has left behind stays until the program frees it.
void Graphs::destroy(GraphExec* exec) {
  part(exec->source, exec->handle);
  execs_.erase(exec->handle);
}

CUresult Graphs::run(GraphExec* exec, CUstream stream, bool only_upload) {
  GraphMemory& memory = Driver::get().graph_memory;
  const bool frees_first = (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  std::set<GraphAllocation*> own, freed;
  for (const Step& step : exec->steps) {
    if (step.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) own.insert(step.memory.get());
    if (step.type == CU_GRAPH_NODE_TYPE_MEM_FREE) freed.insert(step.memory.get());
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
  std::map<int, uint64_t> needs;
  if (!own.empty()) needs = needs_of(exec->steps);
  for (const auto& [device, bytes] : needs) {
    if (!memory.prepare(device, bytes, stream->id)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (only_upload) return CUDA_SUCCESS;
  Driver::get().streams.launched(stream);
  for (const auto& [device, bytes] : needs) {
    GraphMemory::Reserve& reserve = memory.reserve(device);
    reserve.used_high = std::max(reserve.used_high, reserve.used + bytes);
    uint64_t left = 0;
    for (const GraphAllocation* allocation : own) {
      if (allocation->device == device &&
          freed.count(const_cast<GraphAllocation*>(allocation)) == 0)
        left += allocation->bytes();
    }
    memory.runs(device, bytes, left, *stream);
  }
  for (const Step& step : exec->steps) {
    if (step.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && freed.count(step.memory.get()) == 0)
      memory.begin(step.memory);
  }
  for (const Step& step : exec->steps) {
    if (step.type == CU_GRAPH_NODE_TYPE_MEM_FREE && step.memory->live)
      memory.end(step.memory.get());
  }
  return CUDA_SUCCESS;
}

}  // namespace sim
