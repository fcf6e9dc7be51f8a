// Graphs that allocate: launched again without waiting, and a chain whose allocations do not live
// at the same time. With the library, under a cap.
#include "tests/hardware/cuda.h"
#include "tests/hardware/graph.h"
#include "tests/hardware/observer.h"
#include "tests/hardware/probes.h"

namespace hardware {

CUgraphExec allocating_graph(uint64_t bytes, int links, bool freed) {
  CUgraph graph = nullptr;
  cuda("cuGraphCreate", &graph, 0u);
  CUgraphNode last = nullptr;
  for (int link = 0; link < links; ++link) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = {};
    params.poolProps = pool_memory();
    params.bytesize = bytes;
    CUDA_MEM_ALLOC_NODE_PARAMS* const wanted = &params;
    CUgraphNode node = nullptr;
    const CUgraphNode* before = &last;
    size_t count = last != nullptr ? 1 : 0;
    cuda("cuGraphAddMemAllocNode", &node, graph, count != 0 ? before : nullptr, count, wanted);
    last = node;
    if (!freed) continue;
    CUgraphNode end = nullptr;
    count = 1;
    before = &last;
    cuda("cuGraphAddMemFreeNode", &end, graph, before, count, params.dptr);
    last = end;
  }
  CUgraphExec exec = nullptr;
  const int rc = try_cuda("cuGraphInstantiateWithFlags", &exec, graph, 0ull);
  cuda("cuGraphDestroy", graph);
  if (rc == kOutOfMemory) return nullptr;
  if (rc != 0) throw Unmeasured(cuda_failure("cuGraphInstantiateWithFlags", rc));
  return exec;
}

namespace {

uint64_t reserved() {
  unsigned long long bytes = 0;
  void* const out = &bytes;
  cuda("cuDeviceGetGraphMemAttribute", CUdevice{0}, kGraphReserved, out);
  return bytes;
}

// How many of these launches, none of them waited for, are refused.
int launches_refused(CUgraphExec exec, CUstream stream, int count) {
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    const int rc = try_cuda("cuGraphLaunch", exec, stream);
    if (rc != 0 && rc != kOutOfMemory) throw Unmeasured(cuda_failure("cuGraphLaunch", rc));
    refused += rc != 0;
  }
  return refused;
}

}  // namespace

void ask_graphs(const Options& options) {
  const uint64_t cap = options.number("cap");
  question({"graph.relaunch_refused", "graph.relaunch_grown_bytes"}, [&] {
    begin_cuda();
    CUstream stream = nullptr;
    cuda("cuStreamCreate", &stream, 1u);
    const CUgraphExec exec = allocating_graph(cap / 8 * 3 / kMiB * kMiB, 1, true);
    if (exec == nullptr) throw Unmeasured("the first graph is refused");
    cuda("cuGraphLaunch", exec, stream);
    cuda("cuStreamSynchronize", stream);
    const uint64_t first = reserved();
    fact("graph.relaunch_refused", launches_refused(exec, stream, 20));
    cuda("cuStreamSynchronize", stream);
    const uint64_t last = reserved();
    fact("graph.relaunch_grown_bytes", last > first ? static_cast<double>(last - first) : 0);
    cuda("cuGraphExecDestroy", exec);
    cuda("cuDeviceGraphMemTrim", CUdevice{0});
  });
  question({"graph.chain_refused", "graph.chain_reserved_links"}, [&] {
    CUstream stream = nullptr;
    cuda("cuStreamCreate", &stream, 1u);
    const uint64_t bytes = cap / 8 * 3 / kMiB * kMiB;
    const CUgraphExec exec = allocating_graph(bytes, 4, true);
    const bool refused = exec == nullptr || launches_refused(exec, stream, 1) != 0;
    fact("graph.chain_refused", refused);
    if (refused) throw Unmeasured("the graph is refused");
    cuda("cuStreamSynchronize", stream);
    // Of the four allocations' memory, in units of one.
    fact("graph.chain_reserved_links",
         static_cast<double>(reserved()) / static_cast<double>(bytes));
  });
}

}  // namespace hardware
