// The calls that build graphs and read them. A kernel node keeps nothing but its type, because no
// kernel is ever run; so do all nodes that have nothing to do with memory.
#include <algorithm>

#include "sim/cuda/driver.h"

using sim::Driver;
using sim::Graph;
using sim::GraphNode;
using sim::Graphs;
using sim::Guard;

namespace {

Graphs& graphs() {
  return Driver::get().graphs;
}

// Where a node goes: the graph, and the nodes of it that come before. Every one of them once.
struct Place {
  Graph* graph = nullptr;
  std::vector<GraphNode*> after;
  bool good = false;

  Place(CUgraph handle, const CUgraphNode* before, size_t count) {
    graph = graphs().find(handle);
    if (graph == nullptr || (before == nullptr && count != 0)) return;
    for (size_t i = 0; i < count; ++i) {
      GraphNode* node = graphs().find(before[i]);
      if (node == nullptr || node->graph != graph ||
          std::find(after.begin(), after.end(), node) != after.end())
        return;
      after.push_back(node);
    }
    good = true;
  }
};

CUresult add_allocation(CUgraphNode* out, const Place& place, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  GraphNode* node = nullptr;
  const CUresult result = graphs().add_allocation(place.graph, place.after, params, &node);
  if (result == CUDA_SUCCESS) *out = node->handle;
  return result;
}

CUresult add_free(CUgraphNode* out, const Place& place, CUdeviceptr address) {
  GraphNode* node = nullptr;
  const CUresult result = graphs().add_free(place.graph, place.after, address, &node);
  if (result == CUDA_SUCCESS) *out = node->handle;
  return result;
}

CUresult add_child(CUgraphNode* out, const Place& place, CUgraph handle, bool move) {
  Graph* child = graphs().find(handle);
  if (child == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphNode* node = nullptr;
  const CUresult result = graphs().add_child(place.graph, place.after, child, move, &node);
  if (result == CUDA_SUCCESS) *out = node->handle;
  return result;
}

CUresult add_kernel(CUgraphNode* out, const Place& place, bool has_function) {
  if (!has_function) return CUDA_ERROR_INVALID_VALUE;
  *out = graphs().add(place.graph, CU_GRAPH_NODE_TYPE_KERNEL, place.after)->handle;
  return CUDA_SUCCESS;
}

CUresult add_any(CUgraphNode* out, CUgraph graph, const CUgraphNode* before, size_t count,
                 CUgraphNodeParams* params) {
  if (out == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  const Place place(graph, before, count);
  if (!place.good) return CUDA_ERROR_INVALID_VALUE;
  switch (params->type) {
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return add_allocation(out, place, &params->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return add_free(out, place, params->freed);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return add_child(out, place, params->child.graph,
                       params->child.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return add_kernel(out, place,
                        params->kernel.function != nullptr || params->kernel.kernel != nullptr);
    default:
      if (params->type < 0 || params->type > CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)
        return CUDA_ERROR_NOT_SUPPORTED;
      *out = graphs().add(place.graph, params->type, place.after)->handle;
      return CUDA_SUCCESS;
  }
}

}  // namespace

SIM_API CUresult cuGraphCreate(CUgraph* out, unsigned flags) {
  SIM_CALL(cuGraphCreate);
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  *out = graphs().create()->handle;
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphDestroy(CUgraph handle) {
  SIM_CALL(cuGraphDestroy);
  const Guard guard(Driver::get().lock());
  Graph* graph = graphs().find(handle);
  return graph != nullptr && graphs().destroy(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuGraphClone(CUgraph* out, CUgraph handle) {
  SIM_CALL(cuGraphClone);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  Graph* graph = graphs().find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (graph->has_memory()) return CUDA_ERROR_NOT_SUPPORTED;
  *out = graphs().clone(*graph)->handle;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* before,
                                        size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  SIM_CALL(cuGraphAddMemAllocNode);
  const Guard guard(Driver::get().lock());
  const Place place(graph, before, count);
  return out != nullptr && params != nullptr && place.good ? add_allocation(out, place, params)
                                                           : CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* before,
                                       size_t count, CUdeviceptr address) {
  SIM_CALL(cuGraphAddMemFreeNode);
  const Guard guard(Driver::get().lock());
  const Place place(graph, before, count);
  return out != nullptr && place.good ? add_free(out, place, address) : CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* before,
                                     size_t count) {
  SIM_CALL(cuGraphAddEmptyNode);
  const Guard guard(Driver::get().lock());
  const Place place(graph, before, count);
  if (out == nullptr || !place.good) return CUDA_ERROR_INVALID_VALUE;
  *out = graphs().add(place.graph, CU_GRAPH_NODE_TYPE_EMPTY, place.after)->handle;
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphAddKernelNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* before,
                                      size_t count, const CUDA_KERNEL_NODE_PARAMS* params) {
  SIM_CALL(cuGraphAddKernelNode);
  const Guard guard(Driver::get().lock());
  const Place place(graph, before, count);
  return out != nullptr && params != nullptr && place.good
             ? add_kernel(out, place, params->function != nullptr)
             : CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* before,
                                         size_t count, const CUDA_KERNEL_NODE_PARAMS* params) {
  SIM_CALL(cuGraphAddKernelNode_v2);
  const Guard guard(Driver::get().lock());
  const Place place(graph, before, count);
  return out != nullptr && params != nullptr && place.good
             ? add_kernel(out, place, params->function != nullptr || params->kernel != nullptr)
             : CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph,
                                          const CUgraphNode* before, size_t count, CUgraph child) {
  SIM_CALL(cuGraphAddChildGraphNode);
  const Guard guard(Driver::get().lock());
  const Place place(graph, before, count);
  return out != nullptr && place.good ? add_child(out, place, child, false)
                                      : CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuGraphAddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* before,
                                size_t count, CUgraphNodeParams* params) {
  SIM_CALL(cuGraphAddNode);
  return add_any(out, graph, before, count, params);
}
SIM_API CUresult cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* before,
                                   const void* /*edges*/, size_t count, CUgraphNodeParams* params) {
  SIM_CALL(cuGraphAddNode_v2);
  return add_any(out, graph, before, count, params);
}

SIM_API CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  SIM_CALL(cuGraphGetNodes);
  const Guard guard(Driver::get().lock());
  const Graph* graph = graphs().find(handle);
  if (graph == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const size_t all = graph->nodes.size();
  for (size_t i = 0; nodes != nullptr && i < *count; ++i)
    nodes[i] = i < all ? graph->nodes[i]->handle : nullptr;
  *count = nodes != nullptr ? std::min(*count, all) : all;
  return CUDA_SUCCESS;
}
// The driver hands out all edges or the first few.
SIM_API CUresult cuGraphGetEdges(CUgraph handle, CUgraphNode* from, CUgraphNode* to,
                                 size_t* count) {
  SIM_CALL(cuGraphGetEdges);
  const Guard guard(Driver::get().lock());
  const Graph* graph = graphs().find(handle);
  if (graph == nullptr || count == nullptr || (from == nullptr) != (to == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  size_t all = 0;
  for (const auto& node : graph->nodes) {
    for (const GraphNode* before : node->after) {
      if (from != nullptr && all < *count) {
        from[all] = before->handle;
        to[all] = node->handle;
      }
      ++all;
    }
  }
  *count = from != nullptr ? std::min(*count, all) : all;
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphNodeGetType(CUgraphNode handle, int* type) {
  SIM_CALL(cuGraphNodeGetType);
  const Guard guard(Driver::get().lock());
  const GraphNode* node = graphs().find(handle);
  if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->type;
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
  SIM_CALL(cuGraphMemAllocNodeGetParams);
  const Guard guard(Driver::get().lock());
  const GraphNode* node = graphs().find(handle);
  if (node == nullptr || out == nullptr || node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
    return CUDA_ERROR_INVALID_VALUE;
  *out = node->memory->params;
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr* out) {
  SIM_CALL(cuGraphMemFreeNodeGetParams);
  const Guard guard(Driver::get().lock());
  const GraphNode* node = graphs().find(handle);
  if (node == nullptr || out == nullptr || node->type != CU_GRAPH_NODE_TYPE_MEM_FREE)
    return CUDA_ERROR_INVALID_VALUE;
  *out = node->memory->address;
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* out) {
  SIM_CALL(cuGraphChildGraphNodeGetGraph);
  const Guard guard(Driver::get().lock());
  const GraphNode* node = graphs().find(handle);
  if (node == nullptr || out == nullptr || node->child == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = node->child->handle;
  return CUDA_SUCCESS;
}
