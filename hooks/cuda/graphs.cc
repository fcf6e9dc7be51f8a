// Graphs with allocation nodes: their memory appears when they are uploaded or launched, and stays
// with the device's graph memory until that is trimmed. It is charged as a pool is, by what the
// driver reports as reserved. A launch of any other graph costs one comparison.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>

#include "hooks/cuda/streams.h"
#include "shim/charge/linear.h"
#include "shim/charge/pools.h"
#include "shim/charge/refusal.h"
#include "shim/charge/reservation.h"

namespace fracgpu::cuda {
namespace {

// A device's graph memory is entered among the pools by a key that no handle can be.
uint64_t key_of(CUdevice device) {
  return static_cast<uint64_t>(device) + 1;
}
CUdevice device_of(uint64_t key) {
  return static_cast<CUdevice>(key - 1);
}
bool reserved_for_graphs(uint64_t key, uint64_t& bytes) {
  const OwnCalls own_calls;
  return real::cuDeviceGetGraphMemAttribute(device_of(key), kGraphReserved, &bytes) == kSuccess;
}
void trim_graphs(uint64_t key) {
  const OwnCalls own_calls;
  real::cuDeviceGraphMemTrim(device_of(key));
}
constexpr PoolDriver kGraphMemory = {reserved_for_graphs, trim_graphs};

// Set for good when a graph that allocates was seen: the one branch that every launch pays for.
std::atomic<bool> any_graph_allocates{false};

// What a graph's nodes allocate, per device, in bytes.
struct Needs {
  uint64_t bytes[GraphTable::kMaxDevices] = {};
};

void add_needs(CUgraph graph, Needs& needs, int depth) {
  constexpr size_t kAtOnce = 64;
  constexpr int kMaxDepth = 16;
  size_t count = 0;
  if (depth > kMaxDepth || real::cuGraphGetNodes(graph, nullptr, &count) != kSuccess) return;
  // The driver hands out all nodes or the first few; a graph of millions needs memory of its own.
  CUgraphNode few[kAtOnce];
  CUgraphNode* nodes = few;
  const size_t bytes = count * sizeof(CUgraphNode);
  if (count > kAtOnce) {
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return;
    nodes = static_cast<CUgraphNode*>(mapped);
  }
  if (count > 0 && real::cuGraphGetNodes(graph, nodes, &count) == kSuccess) {
    for (size_t i = 0; i < count; ++i) {
      int type = -1;
      CUgraph child = nullptr;
      CUDA_MEM_ALLOC_NODE_PARAMS parameters = {};
      if (real::cuGraphNodeGetType(nodes[i], &type) != kSuccess) continue;
      if (type == kGraphNode && real::cuGraphChildGraphNodeGetGraph(nodes[i], &child) == kSuccess) {
        add_needs(child, needs, depth + 1);
      } else if (type == kAllocNode &&
                 real::cuGraphMemAllocNodeGetParams(nodes[i], &parameters) == kSuccess) {
        const int device = device_of(parameters.poolProps.location);
        if (device < 0 || device >= GraphTable::kMaxDevices) continue;
        uint64_t& sum = needs.bytes[device];
        const uint64_t pages = linear_size(std::max(parameters.bytesize, kPageBytes)).units;
        sum += pages * layout::kUnit;
      }
    }
  }
  if (nodes != few) munmap(nodes, bytes);
}

void learn(Process& process, CUgraphExec exec, CUgraph graph) {
  const OwnCalls own_calls(process);
  Needs needs;
  add_needs(graph, needs, 0);
  for (int device = 0; device < GraphTable::kMaxDevices; ++device) {
    const uint64_t bytes = needs.bytes[device];
    if (bytes == 0 && (process.graphs.devices() >> device & 1) == 0) continue;
    any_graph_allocates.store(true, std::memory_order_relaxed);
    process.graphs.set(exec, device,
                       bytes == 0 ? 0 : layout::units_for(std::max(bytes, kPoolChunkBytes)));
    // Instantiation may have uploaded the graph at once.
    const int device_index = bytes != 0 ? device_index_of(process, device) : Process::kNotCapped;
    if (device_index >= 0 && process.pools.add(key_of(device), device_index, kGraphMemory)) {
      settle_pool(process, key_of(device), nullptr);
    }
  }
}

template <typename Call>
CUresult instantiate(CUgraphExec* exec, CUgraph graph, Call call) {
  Hook hook;
  const CUresult result = call();
  if (result == kSuccess && hook.active() && exec != nullptr) learn(hook.process(), *exec, graph);
  return result;
}

// Calls `run()` with room for what the graph allocates on each device of the set `devices`.
template <typename Run>
CUresult run_on(Process& process, CUgraphExec exec, const char* api, uint64_t devices, Run run) {
  if (devices == 0) return run();
  const CUdevice device = std::countr_zero(devices);
  const uint64_t others = devices & (devices - 1);
  const uint64_t units = process.graphs.units(exec, device);
  const int device_index = units != 0 ? device_index_of(process, device) : Process::kNotCapped;
  if (device_index == Process::kNotCapped) return run_on(process, exec, api, others, run);
  if (device_index == Process::kFault ||
      !process.pools.add(key_of(device), device_index, kGraphMemory)) {
    report_fault(process, api);
    return kOutOfMemory;
  }
  Reservation reservation(process, device_index, units, api);
  if (!reservation) return kOutOfMemory;
  const CUresult result = run_on(process, exec, api, others, run);
  // Otherwise another device's cap may have refused.
  if (result == kOutOfMemory && others == 0) reservation.refused_by_driver();
  settle_pool(process, key_of(device), &reservation);
  return result;
}

template <typename Real>
CUresult run_graph(CUgraphExec exec, CUstream stream, const char* api, const Real& real) {
  driver_library.resolve();
  if (!any_graph_allocates.load(std::memory_order_relaxed)) return real(exec, stream);
  Hook hook;
  const auto run = [&] { return real(exec, stream); };
  if (!hook.active()) return run();
  return run_on(hook.process(), exec, api, hook.process().graphs.devices(), run);
}

}  // namespace

CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                            size_t log_bytes) {
  return instantiate(exec, graph, [&] {
    return real::cuGraphInstantiate(exec, graph, error_node, log, log_bytes);
  });
}

CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                               size_t log_bytes) {
  return instantiate(exec, graph, [&] {
    return real::cuGraphInstantiate_v2(exec, graph, error_node, log, log_bytes);
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return instantiate(exec, graph,
                     [&] { return real::cuGraphInstantiateWithFlags(exec, graph, flags); });
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph, void* parameters) {
  return instantiate(exec, graph,
                     [&] { return real::cuGraphInstantiateWithParams(exec, graph, parameters); });
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* exec, CUgraph graph, void* parameters) {
  return instantiate(exec, graph, [&] {
    return real::cuGraphInstantiateWithParams_ptsz(exec, graph, parameters);
  });
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node, int* result) {
  return instantiate(&exec, graph,
                     [&] { return real::cuGraphExecUpdate(exec, graph, error_node, result); });
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void* result) {
  return instantiate(&exec, graph, [&] { return real::cuGraphExecUpdate_v2(exec, graph, result); });
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return run_graph(exec, stream, "cuGraphUpload", real::cuGraphUpload);
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
  return run_graph(exec, stream, "cuGraphUpload", real::cuGraphUpload_ptsz);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return run_graph(exec, stream, "cuGraphLaunch", real::cuGraphLaunch);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
  return run_graph(exec, stream, "cuGraphLaunch", real::cuGraphLaunch_ptsz);
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  Hook hook;
  const CUresult result = real::cuGraphExecDestroy(exec);
  if (result == kSuccess && hook.active()) {
    GraphTable& graphs = hook.process().graphs;
    for (uint64_t left = graphs.devices(); left != 0; left &= left - 1) {
      graphs.set(exec, std::countr_zero(left), 0);
    }
  }
  return result;
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  Hook hook;
  const CUresult result = real::cuDeviceGraphMemTrim(device);
  if (result == kSuccess && hook.active()) {
    settle_pool(hook.process(), key_of(device), nullptr);
  }
  return result;
}

}  // namespace fracgpu::cuda
