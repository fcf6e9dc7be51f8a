// The calls on graphs that several tests make. Each opens its symbol anew, because the library may
// only be loaded in children.
// Results are those of the calls.
#pragma once

#include "sim/cuda/graph_abi.h"
#include "sim/test/pool_calls.h"

namespace simtest {

inline CUgraph graph_create() {
  CUgraph graph = nullptr;
  EXPECT_EQ((cuda<int(CUgraph*, unsigned)>("cuGraphCreate")(&graph, 0)), 0);
  return graph;
}
inline int graph_destroy(CUgraph graph) {
  return cuda<int(CUgraph)>("cuGraphDestroy")(graph);
}

inline CUDA_MEM_ALLOC_NODE_PARAMS alloc_params(size_t bytes, int dev = 0) {
  CUDA_MEM_ALLOC_NODE_PARAMS params = {};
  params.poolProps = pool_props(CU_MEM_LOCATION_TYPE_DEVICE, dev);
  params.bytesize = bytes;
  return params;
}
inline int add_alloc(CUgraphNode* out, CUgraph graph, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  return cuda<int(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUDA_MEM_ALLOC_NODE_PARAMS*)>(
      "cuGraphAddMemAllocNode")(out, graph, nullptr, 0, params);
}
inline Pointer alloc_node(CUgraph graph, size_t bytes, CUgraphNode* node = nullptr, int dev = 0) {
  CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(bytes, dev);
  CUgraphNode made = nullptr;
  EXPECT_EQ(add_alloc(&made, graph, &params), 0);
  if (node != nullptr) *node = made;
  return params.dptr;
}
inline int free_node(CUgraph graph, Pointer address, CUgraphNode after = nullptr) {
  CUgraphNode node = nullptr;
  return cuda<int(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, Pointer)>(
      "cuGraphAddMemFreeNode")(&node, graph, &after, after != nullptr ? 1 : 0, address);
}
inline CUgraphNode empty_node(CUgraph graph, CUgraphNode after = nullptr) {
  CUgraphNode node = nullptr;
  EXPECT_EQ((cuda<int(CUgraphNode*, CUgraph, const CUgraphNode*, size_t)>("cuGraphAddEmptyNode")(
                &node, graph, &after, after != nullptr ? 1 : 0)),
            0);
  return node;
}

inline int instantiate(CUgraphExec* out, CUgraph graph, unsigned long long flags = 0) {
  return cuda<int(CUgraphExec*, CUgraph, unsigned long long)>("cuGraphInstantiateWithFlags")(
      out, graph, flags);
}
inline CUgraphExec exec_of(CUgraph graph, unsigned long long flags = 0) {
  CUgraphExec exec = nullptr;
  EXPECT_EQ(instantiate(&exec, graph, flags), 0);
  return exec;
}
inline int exec_destroy(CUgraphExec exec) {
  return cuda<int(CUgraphExec)>("cuGraphExecDestroy")(exec);
}
inline int launch(CUgraphExec exec, CUstream stream = nullptr) {
  return cuda<int(CUgraphExec, CUstream)>("cuGraphLaunch")(exec, stream);
}
inline int upload(CUgraphExec exec, CUstream stream = nullptr) {
  return cuda<int(CUgraphExec, CUstream)>("cuGraphUpload")(exec, stream);
}
inline int graph_trim(int dev = 0) {
  return cuda<int(int)>("cuDeviceGraphMemTrim")(dev);
}
// In MiB.
inline uint64_t graph_memory(int attribute, int dev = 0) {
  uint64_t value = 0;
  EXPECT_EQ((cuda<int(int, int, void*)>("cuDeviceGetGraphMemAttribute")(dev, attribute, &value)),
            0);
  return value / kMiB;
}
inline uint64_t graph_reserved(int dev = 0) {
  return graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, dev);
}
inline uint64_t graph_used(int dev = 0) {
  return graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, dev);
}

inline int nodes_of(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return cuda<int(CUgraph, CUgraphNode*, size_t*)>("cuGraphGetNodes")(graph, nodes, count);
}
inline int type_of(CUgraphNode node) {
  int type = -1;
  EXPECT_EQ((cuda<int(CUgraphNode, int*)>("cuGraphNodeGetType")(node, &type)), 0);
  return type;
}

inline int begin_capture(CUstream stream, int mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
  return cuda<int(CUstream, int)>("cuStreamBeginCapture_v2")(stream, mode);
}
inline int end_capture(CUstream stream, CUgraph* out) {
  return cuda<int(CUstream, CUgraph*)>("cuStreamEndCapture")(stream, out);
}
// The status, or minus the error.
inline int capturing(CUstream stream) {
  int status = -1;
  const int result = cuda<int(CUstream, int*)>("cuStreamIsCapturing")(stream, &status);
  return result == 0 ? status : -result;
}

}  // namespace simtest
