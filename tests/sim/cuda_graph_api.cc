// The calls that build, instantiate and run graphs. Dependencies are not kept: nodes run in the
// order in which they were added, which every order that they allow is as good as.
#include "cuda_capture.h"
#include "cuda_driver.h"

using sim::Driver;
using sim::Graph;
using sim::GraphExec;
using sim::GraphNode;
using sim::Guard;

struct CUgraph_st;
struct CUgraphNode_st;
struct CUgraphExec_st;
using CUgraph = CUgraph_st*;
using CUgraphNode = CUgraphNode_st*;
using CUgraphExec = CUgraphExec_st*;

namespace {

// The start of CUgraphNodeParams; what follows depends on the type.
struct NodeParams {
  int type;
  int reserved[3];
  union {
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;
    CUdeviceptr freed;
    CUgraph child;
  };
};

Graph* of(CUgraph handle) {
  return reinterpret_cast<Graph*>(handle);
}
GraphNode* of(CUgraphNode handle) {
  return reinterpret_cast<GraphNode*>(handle);
}
GraphExec* of(CUgraphExec handle) {
  return reinterpret_cast<GraphExec*>(handle);
}

CUresult add(CUgraphNode* out, CUgraph graph, const GraphNode& form, const Graph* child = nullptr) {
  if (out == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  auto node = std::make_unique<GraphNode>();
  node->type = form.type;
  node->freed = form.freed;
  if (child != nullptr) node->child = child->clone();
  *out = reinterpret_cast<CUgraphNode>(node.get());
  of(graph)->nodes.push_back(std::move(node));
  return CUDA_SUCCESS;
}

CUresult add_plain(CUgraphNode* out, CUgraph graph, int type, CUdeviceptr freed = 0) {
  GraphNode form;
  form.type = type;
  form.freed = freed;
  return add(out, graph, form);
}

CUresult add_alloc(CUgraphNode* out, CUgraph graph, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  if (out == nullptr || graph == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  GraphNode* node = nullptr;
  const CUresult result = sim::add_allocation(of(graph), params, &node);
  if (result == CUDA_SUCCESS) *out = reinterpret_cast<CUgraphNode>(node);
  return result;
}

CUresult add_any(CUgraphNode* out, CUgraph graph, NodeParams* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (params->type) {
    case GraphNode::kAlloc:
      return add_alloc(out, graph, &params->alloc);
    case GraphNode::kFree:
      return add_plain(out, graph, GraphNode::kFree, params->freed);
    case GraphNode::kChild: {
      GraphNode form;
      form.type = GraphNode::kChild;
      return params->child == nullptr ? CUDA_ERROR_INVALID_VALUE
                                      : add(out, graph, form, of(params->child));
    }
    default:
      return add_plain(out, graph, params->type);
  }
}

CUresult instantiate(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  if (out == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  auto* exec = new GraphExec;
  exec->read(*of(graph));
  exec->frees_itself = (flags & 1) != 0;  // CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
  *out = reinterpret_cast<CUgraphExec>(exec);
  return CUDA_SUCCESS;
}

CUresult run(CUgraphExec exec, bool only_upload) {
  if (const CUresult refused = sim::usable(sim::current())) return refused;
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  return Driver::get().graph_memory.launch(of(exec), only_upload);
}

CUresult update(CUgraphExec exec, CUgraph graph) {
  if (exec == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  GraphExec fresh;
  fresh.read(*of(graph));
  // Allocations cannot be changed by an update.
  return fresh.steps.size() == of(exec)->steps.size() ? CUDA_SUCCESS : 910;
}

}  // namespace

SIM_API CUresult cuGraphCreate(CUgraph* out, unsigned flags) {
  SIM_CALL(cuGraphCreate);
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUgraph>(new Graph);
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphDestroy(CUgraph graph) {
  SIM_CALL(cuGraphDestroy);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  delete of(graph);
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphClone(CUgraph* out, CUgraph graph) {
  SIM_CALL(cuGraphClone);
  if (out == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUgraph>(of(graph)->clone().release());
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph graph, const CUgraphNode*, size_t,
                                        CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  SIM_CALL(cuGraphAddMemAllocNode);
  return add_alloc(out, graph, params);
}
SIM_API CUresult cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph graph, const CUgraphNode*, size_t,
                                       CUdeviceptr address) {
  SIM_CALL(cuGraphAddMemFreeNode);
  return add_plain(out, graph, GraphNode::kFree, address);
}
SIM_API CUresult cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode*, size_t) {
  SIM_CALL(cuGraphAddEmptyNode);
  return add_plain(out, graph, GraphNode::kEmpty);
}
SIM_API CUresult cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph, const CUgraphNode*,
                                          size_t, CUgraph child) {
  SIM_CALL(cuGraphAddChildGraphNode);
  if (child == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphNode form;
  form.type = GraphNode::kChild;
  return add(out, graph, form, of(child));
}
SIM_API CUresult cuGraphAddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode*, size_t,
                                NodeParams* params) {
  SIM_CALL(cuGraphAddNode);
  return add_any(out, graph, params);
}
SIM_API CUresult cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode*, const void*,
                                   size_t, NodeParams* params) {
  SIM_CALL(cuGraphAddNode_v2);
  return add_any(out, graph, params);
}
SIM_API CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  SIM_CALL(cuGraphGetNodes);
  if (graph == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  const auto& all = of(graph)->nodes;
  if (nodes == nullptr) {
    *count = all.size();
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < *count; ++i) {
    nodes[i] = i < all.size() ? reinterpret_cast<CUgraphNode>(all[i].get()) : nullptr;
  }
  if (*count > all.size()) *count = all.size();
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphNodeGetType(CUgraphNode node, int* type) {
  SIM_CALL(cuGraphNodeGetType);
  if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = of(node)->type;
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
  SIM_CALL(cuGraphMemAllocNodeGetParams);
  if (node == nullptr || out == nullptr || of(node)->type != GraphNode::kAlloc)
    return CUDA_ERROR_INVALID_VALUE;
  *out = of(node)->alloc;
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* out) {
  SIM_CALL(cuGraphMemFreeNodeGetParams);
  if (node == nullptr || out == nullptr || of(node)->type != GraphNode::kFree)
    return CUDA_ERROR_INVALID_VALUE;
  *out = of(node)->freed;
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* out) {
  SIM_CALL(cuGraphChildGraphNodeGetGraph);
  if (node == nullptr || out == nullptr || of(node)->child == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUgraph>(of(node)->child.get());
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode*, char*, size_t) {
  SIM_CALL(cuGraphInstantiate);
  return instantiate(out, graph, 0);
}
SIM_API CUresult cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode*, char*,
                                       size_t) {
  SIM_CALL(cuGraphInstantiate_v2);
  return instantiate(out, graph, 0);
}
SIM_API CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph,
                                             unsigned long long flags) {
  SIM_CALL(cuGraphInstantiateWithFlags);
  return instantiate(out, graph, flags);
}
SIM_API CUresult cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph, const uint64_t* p) {
  SIM_CALL(cuGraphInstantiateWithParams);
  return instantiate(out, graph, p != nullptr ? *p : 0);
}
SIM_API CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* out, CUgraph graph,
                                                   const uint64_t* p) {
  SIM_CALL(cuGraphInstantiateWithParams_ptsz);
  return instantiate(out, graph, p != nullptr ? *p : 0);
}
SIM_API CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode*, int*) {
  SIM_CALL(cuGraphExecUpdate);
  return update(exec, graph);
}
SIM_API CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void*) {
  SIM_CALL(cuGraphExecUpdate_v2);
  return update(exec, graph);
}
SIM_API CUresult cuGraphExecDestroy(CUgraphExec exec) {
  SIM_CALL(cuGraphExecDestroy);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  delete of(exec);
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphUpload(CUgraphExec exec, CUstream) {
  SIM_CALL(cuGraphUpload);
  return run(exec, true);
}
SIM_API CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream) {
  SIM_CALL(cuGraphUpload_ptsz);
  return run(exec, true);
}
SIM_API CUresult cuGraphLaunch(CUgraphExec exec, CUstream) {
  SIM_CALL(cuGraphLaunch);
  return run(exec, false);
}
SIM_API CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream) {
  SIM_CALL(cuGraphLaunch_ptsz);
  return run(exec, false);
}

SIM_API CUresult cuDeviceGraphMemTrim(CUdevice dev) {
  SIM_CALL(cuDeviceGraphMemTrim);
  if (!Driver::get().valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const Guard guard(Driver::get().lock());
  Driver::get().graph_memory.trim(dev);
  return CUDA_SUCCESS;
}
SIM_API CUresult cuDeviceGetGraphMemAttribute(CUdevice dev, int attribute, void* value) {
  SIM_CALL(cuDeviceGetGraphMemAttribute);
  if (!Driver::get().valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr || attribute < 0 || attribute > 3) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  const sim::Pool* reserve = Driver::get().graph_memory.reserve_of(dev);
  const uint64_t all[] = {reserve->used, reserve->used_high, reserve->reserved,
                          reserve->reserved_high};
  *static_cast<uint64_t*>(value) = all[attribute];
  return CUDA_SUCCESS;
}
SIM_API CUresult cuDeviceSetGraphMemAttribute(CUdevice dev, int attribute, void* value) {
  SIM_CALL(cuDeviceSetGraphMemAttribute);
  if (!Driver::get().valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr || (attribute != 1 && attribute != 3)) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  sim::Pool* reserve = Driver::get().graph_memory.reserve_of(dev);
  (attribute == 1 ? reserve->used_high : reserve->reserved_high) =
      attribute == 1 ? reserve->used : reserve->reserved;
  return CUDA_SUCCESS;
}
