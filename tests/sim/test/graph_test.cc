// Tests of graph memory: when it is there, what it costs, who uses it again and when it is given
// back. The physical bytes are read from the node by the observer. A context costs 64 MiB here, and
// the device has 1024.
#include <atomic>

#include "sim/test/graph_calls.h"

using namespace simtest;

namespace {

constexpr uint64_t kContext = 64;

uint64_t mib(TestNode& node) {
  return node->used(0) / kMiB;
}

TEST(SimGraph, MemoryAppearsAtLaunchAndStays) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUgraph graph = graph_create();
    const Pointer a = alloc_node(graph, 1), b = alloc_node(graph, 3 * kMiB);
    EXPECT_NE(a, b);
    ASSERT_EQ(free_node(graph, a), 0);
    ASSERT_EQ(free_node(graph, b), 0);
    const CUgraphExec exec = exec_of(graph);
    EXPECT_EQ(mib(node), kContext);
    ASSERT_EQ(launch(exec), 0);
    EXPECT_EQ(mib(node), kContext + 32);
    EXPECT_EQ(graph_reserved(), 32u);
    EXPECT_EQ(graph_used(), 0u);
    EXPECT_EQ(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 6u);  // two pages and one
    for (int i = 0; i < 3; ++i) ASSERT_EQ(launch(exec), 0);
    EXPECT_EQ(mib(node), kContext + 32);
    // Another graph uses the same; what it needs more is added in steps of 32, or as it is.
    const CUgraph second = graph_create(), third = graph_create();
    ASSERT_EQ(free_node(second, alloc_node(second, 40 * kMiB)), 0);
    ASSERT_EQ(free_node(third, alloc_node(third, 101 * kMiB)), 0);
    ASSERT_EQ(launch(exec_of(second)), 0);
    EXPECT_EQ(graph_reserved(), 64u);  // 8 were missing
    ASSERT_EQ(launch(exec_of(third)), 0);
    EXPECT_EQ(graph_reserved(), 102u);  // 38 were
    EXPECT_EQ(mib(node), kContext + 102);
    EXPECT_EQ(node->used_by_pid(0, getpid()), (kContext + 102) * kMiB);
    ASSERT_EQ(context_sync(), 0);
    EXPECT_EQ(mib(node), kContext + 102);
    ASSERT_EQ(graph_trim(), 0);
    EXPECT_EQ(mib(node), kContext);
    EXPECT_EQ(graph_reserved(), 0u);
    EXPECT_EQ(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 102u);
    ASSERT_EQ(launch(exec), 0);
    EXPECT_EQ(mib(node), kContext + 32);
  });
  EXPECT_EQ(node->used(0), 0u);
}

TEST(SimGraph, WhatIsLeftBehind) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUgraph graph = graph_create();
    const Pointer a = alloc_node(graph, 20 * kMiB), b = alloc_node(graph, 20 * kMiB);
    const CUgraphExec exec = exec_of(graph);
    auto* fill = cuda<int(Pointer, unsigned char, size_t)>("cuMemsetD8_v2");
    EXPECT_EQ(fill(a, 0, 512), 1);  // no memory yet
    ASSERT_EQ(launch(exec), 0);
    EXPECT_EQ(fill(a, 0, 20 * kMiB), 0);
    EXPECT_EQ(fill(a, 0, 20 * kMiB + 1), 1);
    EXPECT_EQ(mib(node), kContext + 40);
    EXPECT_EQ(graph_used(), 40u);
    EXPECT_EQ(launch(exec), 1);  // still in use
    ASSERT_EQ(graph_trim(), 0);
    EXPECT_EQ(mib(node), kContext + 40);
    ASSERT_EQ(cu_free(a), 0);
    EXPECT_EQ(cu_free(a), 1);
    EXPECT_EQ(launch(exec), 1);
    EXPECT_EQ(graph_used(), 20u);
    EXPECT_EQ(mib(node), kContext + 40);
    ASSERT_EQ(graph_trim(), 0);
    EXPECT_EQ(mib(node), kContext + 20);
    ASSERT_EQ(free_async(b, nullptr), 0);
    ASSERT_EQ(launch(exec), 0);
    EXPECT_EQ(mib(node), kContext + 20 + 32);  // 20 were there, 20 were missing
    // It outlives the graph and its execution.
    ASSERT_EQ(exec_destroy(exec), 0);
    ASSERT_EQ(graph_destroy(graph), 0);
    EXPECT_EQ(exec_destroy(exec), 1);
    EXPECT_EQ(fill(b, 0, 512), 0);
    ASSERT_EQ(graph_trim(), 0);
    EXPECT_EQ(mib(node), kContext + 40);
    EXPECT_EQ(cu_free(a), 0);
    EXPECT_EQ(cu_free(b), 0);
    ASSERT_EQ(graph_trim(), 0);
    EXPECT_EQ(mib(node), kContext);
  });
}

TEST(SimGraph, FreesItselfIfAsked) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUgraph graph = graph_create();
    const Pointer a = alloc_node(graph, 50 * kMiB);
    const CUgraphExec exec = exec_of(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(launch(exec), 0);
    EXPECT_EQ(mib(node), kContext + 50);
    EXPECT_EQ(graph_used(), 50u);
    ASSERT_EQ(cu_free(a), 0);
    ASSERT_EQ(launch(exec), 0);
    EXPECT_EQ(mib(node), kContext + 50);
  });
}

TEST(SimGraph, FreedByAnotherGraph) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUgraph maker = graph_create(), taker = graph_create();
    CUgraphNode made = nullptr;
    const Pointer a = alloc_node(maker, 10 * kMiB), b = alloc_node(maker, 10 * kMiB, &made);
    ASSERT_EQ(free_node(taker, a), 0);
    EXPECT_EQ(free_node(taker, a), 1);
    EXPECT_EQ(free_node(maker, a), 1);  // not in both
    ASSERT_EQ(free_node(maker, b, made), 0);
    EXPECT_EQ(free_node(taker, b), 1);
    EXPECT_EQ(free_node(maker, b), 1);
    EXPECT_EQ(free_node(maker, 0x1234), 1);
    const CUgraphExec make = exec_of(maker), take = exec_of(taker);
    EXPECT_EQ(launch(take), 1);  // nothing there to free
    ASSERT_EQ(launch(make), 0);
    EXPECT_EQ(graph_used(), 10u);
    EXPECT_EQ(cu_free(b), 1);
    ASSERT_EQ(launch(take), 0);
    EXPECT_EQ(graph_used(), 0u);
    ASSERT_EQ(launch(make), 0);
    ASSERT_EQ(launch(take), 0);
    EXPECT_EQ(mib(node), kContext + 32);
  });
}

TEST(SimGraph, UploadTakesMemory) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUgraph graph = graph_create();
    alloc_node(graph, 70 * kMiB);
    const CUgraphExec exec = exec_of(graph);
    ASSERT_EQ(upload(exec), 0);
    EXPECT_EQ(mib(node), kContext + 70);
    EXPECT_EQ(graph_used(), 0u);
    ASSERT_EQ(launch(exec), 0);
    EXPECT_EQ(mib(node), kContext + 70);
    const CUgraph second = graph_create();
    alloc_node(second, 10 * kMiB);
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {};
    params.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    params.result = 77;
    CUgraphExec with = nullptr;
    auto* call = cuda<int(CUgraphExec*, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS*)>(
        "cuGraphInstantiateWithParams");
    ASSERT_EQ(call(&with, second, &params), 0);
    EXPECT_EQ(params.result, 0);
    EXPECT_EQ(mib(node), kContext + 102);
    EXPECT_EQ(instantiate(&with, graph_create(), CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD), 1);
    // Nothing is left of an execution that could not be uploaded.
    const CUgraph large = graph_create();
    alloc_node(large, 1000 * kMiB);
    with = nullptr;
    EXPECT_EQ(call(&with, large, &params), 2);
    EXPECT_EQ(with, nullptr);
    EXPECT_EQ(params.result, 1);
    EXPECT_EQ(launch(exec_of(large)), 2);
    EXPECT_EQ(mib(node), kContext + 102);
  });
}

// "Allocations whose lifetimes do not overlap may use the same physical memory."
TEST(SimGraph, AllocationsInAChainShare) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUstream stream = stream_create();
    CUgraph graph = nullptr;
    ASSERT_EQ(begin_capture(stream), 0);
    for (int i = 0; i < 4; ++i) {
      Pointer a = 0;
      ASSERT_EQ(alloc_async(&a, 300 * kMiB, stream), 0);
      ASSERT_EQ(free_async(a, stream), 0);
    }
    ASSERT_EQ(end_capture(stream, &graph), 0);
    size_t edges = 0;
    ASSERT_EQ((cuda<int(CUgraph, CUgraphNode*, CUgraphNode*, size_t*)>("cuGraphGetEdges")(
                  graph, nullptr, nullptr, &edges)),
              0);
    EXPECT_EQ(edges, 7u);
    ASSERT_EQ(launch(exec_of(graph)), 0);
    EXPECT_EQ(graph_reserved(), 300u);
    EXPECT_EQ(mib(node), kContext + 300);
  });
}

TEST(SimGraph, FullDevice) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    Pointer most = 0;
    ASSERT_EQ(cu_alloc(&most, (960 - 20) * kMiB), 0);
    const CUgraph graph = graph_create(), larger = graph_create();
    ASSERT_EQ(free_node(graph, alloc_node(graph, 9 * kMiB)), 0);
    ASSERT_EQ(free_node(larger, alloc_node(larger, 21 * kMiB)), 0);
    ASSERT_EQ(launch(exec_of(graph)), 0);
    EXPECT_EQ(graph_reserved(), 10u);  // 20 are left: not the 32 it would rather take
    EXPECT_EQ(launch(exec_of(larger)), 2);
    EXPECT_EQ(mib(node), 1024u - 10);
    CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(2048 * kMiB);
    CUgraphNode made = nullptr;
    EXPECT_EQ(add_alloc(&made, graph, &params), 2);
    params = alloc_params(0);
    EXPECT_EQ(add_alloc(&made, graph, &params), 1);
    params = alloc_params(512, 4);
    EXPECT_EQ(add_alloc(&made, graph, &params), 101);
    params = alloc_params(512);
    params.poolProps.handleTypes = 1;
    EXPECT_EQ(add_alloc(&made, graph, &params), 1);
  });
}

TEST(SimGraph, TwoDevices) {
  TestNode node("2xa100-40gb");
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const uint64_t before[] = {node->used(0), node->used(1)};
    const CUgraph graph = graph_create();
    alloc_node(graph, kMiB, nullptr, 0);
    alloc_node(graph, 60 * kMiB, nullptr, 1);
    ASSERT_EQ(launch(exec_of(graph)), 0);
    EXPECT_EQ(node->used(0), before[0] + 32 * kMiB);
    EXPECT_EQ(node->used(1), before[1] + 60 * kMiB);
    EXPECT_EQ(graph_reserved(1), 60u);
    EXPECT_EQ(graph_trim(2), 101);
  });
}

TEST(SimGraph, RestrictionsOfMemoryNodes) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUgraph graph = graph_create(), parent = graph_create(), plain = graph_create();
    const Pointer a = alloc_node(graph, 10 * kMiB);
    CUgraph clone = nullptr, inside = nullptr;
    auto* copy = cuda<int(CUgraph*, CUgraph)>("cuGraphClone");
    EXPECT_EQ(copy(&clone, graph), 801);
    empty_node(plain, empty_node(plain));
    ASSERT_EQ(copy(&clone, plain), 0);
    size_t count = 0;
    ASSERT_EQ(nodes_of(clone, nullptr, &count), 0);
    EXPECT_EQ(count, 2u);
    CUgraphExec exec = exec_of(graph), second = nullptr;
    EXPECT_EQ(instantiate(&second, graph), 801);
    ASSERT_EQ(exec_destroy(exec), 0);
    exec = exec_of(graph);
    ASSERT_EQ(exec_destroy(exec), 0);
    ASSERT_EQ(instantiate(&exec, plain), 0);
    ASSERT_EQ(instantiate(&second, plain), 0);
    // As a child, only when the parent takes it over.
    CUgraphNode child = nullptr;
    EXPECT_EQ((cuda<int(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUgraph)>(
                  "cuGraphAddChildGraphNode")(&child, parent, nullptr, 0, graph)),
              801);
    CUgraphNodeParams params = {};
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.child = {graph, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE};
    auto* add = cuda<int(CUgraphNode*, CUgraph, const CUgraphNode*, const void*, size_t,
                         CUgraphNodeParams*)>("cuGraphAddNode_v2");
    ASSERT_EQ(add(&child, parent, nullptr, nullptr, 0, &params), 0);
    EXPECT_EQ(type_of(child), CU_GRAPH_NODE_TYPE_GRAPH);
    ASSERT_EQ((cuda<int(CUgraphNode, CUgraph*)>("cuGraphChildGraphNodeGetGraph")(child, &inside)),
              0);
    EXPECT_EQ(inside, graph);
    EXPECT_EQ(graph_destroy(graph), 1);
    EXPECT_EQ(instantiate(&exec, graph), 1);
    EXPECT_EQ(free_node(graph, a), 1);
    EXPECT_EQ(copy(&clone, parent), 801);
    ASSERT_EQ(launch(exec_of(parent)), 0);
    EXPECT_EQ(graph_used(), 10u);
    EXPECT_EQ(cu_free(a), 0);
    ASSERT_EQ(graph_destroy(parent), 0);
    EXPECT_EQ(graph_destroy(graph), 1);
    EXPECT_EQ(nodes_of(inside, nullptr, &count), 1);
  });
}

TEST(SimGraph, NodesOfAllKinds) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUgraph graph = graph_create(), other = graph_create(), plain = graph_create();
    auto* add = cuda<int(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUgraphNodeParams*)>(
        "cuGraphAddNode");
    CUgraphNodeParams params = {};
    params.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    params.alloc = alloc_params(4 * kMiB);
    CUgraphNode made = nullptr, freed = nullptr, kernel = nullptr, child = nullptr;
    ASSERT_EQ(add(&made, graph, nullptr, 0, &params), 0);
    const Pointer a = params.alloc.dptr;
    EXPECT_NE(a, 0u);
    params = {};
    params.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    params.freed = a;
    EXPECT_EQ(add(&freed, other, &made, 1, &params), 1);  // a node of another graph
    const CUgraphNode twice[] = {made, made};
    EXPECT_EQ(add(&freed, graph, twice, 2, &params), 1);
    ASSERT_EQ(add(&freed, graph, &made, 1, &params), 0);
    Pointer of = 0;
    ASSERT_EQ((cuda<int(CUgraphNode, Pointer*)>("cuGraphMemFreeNodeGetParams")(freed, &of)), 0);
    EXPECT_EQ(of, a);
    EXPECT_EQ((cuda<int(CUgraphNode, Pointer*)>("cuGraphMemFreeNodeGetParams")(made, &of)), 1);
    CUDA_KERNEL_NODE_PARAMS launch_params = {};
    using AddKernel =
        int(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, const CUDA_KERNEL_NODE_PARAMS*);
    EXPECT_EQ(
        cuda<AddKernel>("cuGraphAddKernelNode_v2")(&kernel, graph, nullptr, 0, &launch_params), 1);
    launch_params.kernel = &launch_params;
    EXPECT_EQ(
        cuda<AddKernel>("cuGraphAddKernelNode_v2")(&kernel, graph, nullptr, 0, &launch_params), 0);
    EXPECT_EQ(cuda<AddKernel>("cuGraphAddKernelNode")(&kernel, graph, nullptr, 0, &launch_params),
              1);  // the old one knows only functions
    EXPECT_EQ(type_of(kernel), CU_GRAPH_NODE_TYPE_KERNEL);
    params = {};
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.child = {plain, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE};
    ASSERT_EQ(add(&child, graph, nullptr, 0, &params), 0);
    EXPECT_EQ(graph_destroy(plain), 0);
    params.type = 13;
    EXPECT_EQ(add(&child, graph, nullptr, 0, &params), 801);
    ASSERT_EQ(launch(exec_of(graph)), 0);
    EXPECT_EQ(graph_reserved(), 32u);
    EXPECT_EQ(graph_used(), 0u);
  });
}

TEST(SimGraph, Update) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUgraph first = graph_create(), larger = graph_create(), other = graph_create();
    ASSERT_EQ(free_node(first, alloc_node(first, 4 * kMiB)), 0);
    ASSERT_EQ(free_node(larger, alloc_node(larger, 90 * kMiB)), 0);
    empty_node(other);
    const CUgraphExec exec = exec_of(first);
    auto* update =
        cuda<int(CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo*)>("cuGraphExecUpdate_v2");
    CUgraphExecUpdateResultInfo info = {};
    EXPECT_EQ(update(exec, other, &info), 910);
    EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    const CUgraphNode odd = empty_node(other);
    CUgraphNode where = nullptr;
    int reason = -1;
    EXPECT_EQ((cuda<int(CUgraphExec, CUgraph, CUgraphNode*, int*)>("cuGraphExecUpdate")(
                  exec, other, &where, &reason)),
              910);
    EXPECT_EQ(reason, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    EXPECT_NE(where, nullptr);
    EXPECT_NE(where, odd);
    ASSERT_EQ(launch(exec), 0);
    EXPECT_EQ(graph_reserved(), 32u);
    // What it needs from now on appears at its next launch.
    ASSERT_EQ(update(exec, larger, &info), 0);
    EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    EXPECT_EQ(graph_reserved(), 32u);
    ASSERT_EQ(launch(exec), 0);
    EXPECT_EQ(graph_reserved(), 90u);
    // The execution is the second graph's now, and no longer the first one's.
    CUgraphExec second = nullptr;
    EXPECT_EQ(instantiate(&second, larger), 801);
    EXPECT_EQ(instantiate(&second, first), 0);
  });
}

TEST(SimGraph, HighMarksAreReset) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUgraph graph = graph_create();
    alloc_node(graph, 4 * kMiB);
    ASSERT_EQ(free_node(graph, alloc_node(graph, 50 * kMiB)), 0);
    ASSERT_EQ(launch(exec_of(graph)), 0);
    ASSERT_EQ(graph_trim(), 0);
    EXPECT_EQ(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 54u);
    EXPECT_EQ(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 54u);
    auto* set = cuda<int(int, int, void*)>("cuDeviceSetGraphMemAttribute");
    uint64_t value = 1;
    EXPECT_EQ(set(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &value), 1);
    value = 0;
    EXPECT_EQ(set(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &value), 1);
    ASSERT_EQ(set(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &value), 0);
    ASSERT_EQ(set(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &value), 0);
    EXPECT_EQ(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 4u);
    EXPECT_EQ(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 4u);
  });
}

TEST(SimGraph, OutlivesThePrimaryContext) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUgraph graph = graph_create();
    const Pointer a = alloc_node(graph, 40 * kMiB);
    const CUgraphExec exec = exec_of(graph);
    ASSERT_EQ(launch(exec), 0);
    ASSERT_EQ(cuda<int(int)>("cuDevicePrimaryCtxReset_v2")(0), 0);
    EXPECT_EQ(mib(node), 40u);
    ASSERT_EQ(cu_start(), 0);
    EXPECT_EQ(cu_free(a), 0);
    ASSERT_EQ(launch(exec), 0);
    EXPECT_EQ(mib(node), kContext + 40);
  });
}

TEST(SimGraph, OrderedFailures) {
  TestNode node;
  setenv("FRACGPU_SIM_FAIL", "cuGraphLaunch:2=2,cuGraphAddMemAllocNode:2=999", 1);
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUgraph graph = graph_create();
    ASSERT_EQ(free_node(graph, alloc_node(graph, kMiB)), 0);
    CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(512);
    CUgraphNode made = nullptr;
    EXPECT_EQ(add_alloc(&made, graph, &params), 999);
    const CUgraphExec exec = exec_of(graph);
    EXPECT_EQ(launch(exec), 0);
    EXPECT_EQ(launch(exec), 2);
    EXPECT_EQ(launch(exec), 0);
  });
  unsetenv("FRACGPU_SIM_FAIL");
}

TEST(SimGraph, KilledInTheMiddle) {
  sim::NodeOptions options;
  options.context_mib = 2;
  TestNode node("tiny", options);
  kill_in_the_middle(node, 30, [](Child& parent) {
    ASSERT_EQ(cu_start(), 0);
    const CUgraph graph = graph_create();
    ASSERT_EQ(free_node(graph, alloc_node(graph, 40 * kMiB)), 0);
    const CUgraphExec exec = exec_of(graph);
    for (int turn = 0;; ++turn) {
      if (turn == 1) parent.say(0);
      launch(exec);
      graph_trim();
    }
  });
  EXPECT_EQ(node->tenant_high_water(0, "none"), 42 * kMiB);
}

}  // namespace
