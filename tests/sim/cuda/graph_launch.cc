// The calls that instantiate, update and run graphs, and those on the memory that this takes.
#include "sim/cuda/capture_table.h"
#include "sim/cuda/driver.h"

using sim::Driver;
using sim::Graph;
using sim::GraphExec;
using sim::GraphMemory;
using sim::Guard;

namespace {

constexpr unsigned long long kKnownFlags = 15;

CUresult instantiate(CUgraphExec* out, CUgraph handle, unsigned long long flags,
                     GraphExec** made = nullptr) {
  sim::Graphs& graphs = Driver::get().graphs;
  Graph* graph = graphs.find(handle);
  const bool from_device = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0;
  if (out == nullptr || graph == nullptr || (flags & ~kKnownFlags) != 0 ||
      (from_device && (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0))
    return CUDA_ERROR_INVALID_VALUE;
  if (from_device && graph->has_memory()) return CUDA_ERROR_NOT_SUPPORTED;
  GraphExec* exec = nullptr;
  if (const CUresult result = graphs.instantiate(graph, flags, &exec)) return result;
  *out = exec->handle;
  if (made != nullptr) *made = exec;
  return CUDA_SUCCESS;
}

CUresult instantiate_locked(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  const Guard guard(Driver::get().lock());
  // An upload wants a stream, which only the call with parameters has.
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) return CUDA_ERROR_INVALID_VALUE;
  return instantiate(out, graph, flags);
}

CUresult instantiate_with(CUgraphExec* out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params,
                          bool per_thread) {
  if (out == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  params->error_node = nullptr;
  params->result = 1;  // unless it succeeds
  const bool upload = (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0;
  CUstream stream = nullptr;
  if (upload) {
    if (const CUresult refused = driver.streams.find(params->stream, per_thread, &stream))
      return refused;
    if (const CUresult refused = sim::refused_in_capture(stream)) return refused;
  }
  CUgraphExec handle = nullptr;
  GraphExec* exec = nullptr;
  if (const CUresult result = instantiate(&handle, graph, params->flags, &exec)) return result;
  if (upload) {
    if (const CUresult result = driver.graphs.run(exec, stream, true)) {
      driver.graphs.destroy(exec);
      return result;
    }
  }
  params->result = 0;
  *out = handle;
  return CUDA_SUCCESS;
}

CUresult run(CUgraphExec handle, CUstream stream_handle, bool per_thread, bool only_upload) {
  Driver& driver = Driver::get();
  const Guard guard(driver.lock());
  GraphExec* exec = driver.graphs.find(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUstream stream = nullptr;
  if (const CUresult refused = driver.streams.find(stream_handle, per_thread, &stream))
    return refused;
  if (const CUresult refused = sim::refused_in_capture(stream)) return refused;
  return driver.graphs.run(exec, stream, only_upload);
}

CUresult update(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo* info) {
  sim::Graphs& graphs = Driver::get().graphs;
  const Guard guard(Driver::get().lock());
  GraphExec* exec = graphs.find(handle);
  Graph* graph = graphs.find(graph_handle);
  *info = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
  if (exec == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  sim::GraphNode* where = nullptr;
  const CUresult result = graphs.update(exec, graph, &info->result, &where);
  if (where != nullptr) info->error_node = where->handle;
  return result;
}

// The attributes come in pairs: what there is, and the most there was.
uint64_t* number(GraphMemory::Reserve* reserve, int attribute) {
  uint64_t* const all[] = {&reserve->used, &reserve->used_high, &reserve->reserved,
                           &reserve->reserved_high};
  return attribute >= 0 && attribute <= CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH ? all[attribute]
                                                                            : nullptr;
}

}  // namespace

SIM_API CUresult cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode* error_node, char*,
                                    size_t) {
  SIM_CALL(cuGraphInstantiate);
  if (error_node != nullptr) *error_node = nullptr;
  return instantiate_locked(out, graph, 0);
}
SIM_API CUresult cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* error_node,
                                       char*, size_t) {
  SIM_CALL(cuGraphInstantiate_v2);
  if (error_node != nullptr) *error_node = nullptr;
  return instantiate_locked(out, graph, 0);
}
SIM_API CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph,
                                             unsigned long long flags) {
  SIM_CALL(cuGraphInstantiateWithFlags);
  return instantiate_locked(out, graph, flags);
}
SIM_API CUresult cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph,
                                              CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  SIM_CALL(cuGraphInstantiateWithParams);
  return instantiate_with(out, graph, params, false);
}
SIM_API CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* out, CUgraph graph,
                                                   CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  SIM_CALL(cuGraphInstantiateWithParams_ptsz);
  return instantiate_with(out, graph, params, true);
}
SIM_API CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node,
                                   int* reason) {
  SIM_CALL(cuGraphExecUpdate);
  CUgraphExecUpdateResultInfo info;
  const CUresult result = update(exec, graph, &info);
  if (error_node != nullptr) *error_node = info.error_node;
  if (reason != nullptr) *reason = info.result;
  return result;
}
SIM_API CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                      CUgraphExecUpdateResultInfo* out) {
  SIM_CALL(cuGraphExecUpdate_v2);
  CUgraphExecUpdateResultInfo info;
  const CUresult result = update(exec, graph, &info);
  if (out != nullptr) *out = info;
  return result;
}
SIM_API CUresult cuGraphExecDestroy(CUgraphExec handle) {
  SIM_CALL(cuGraphExecDestroy);
  const Guard guard(Driver::get().lock());
  GraphExec* exec = Driver::get().graphs.find(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Driver::get().graphs.destroy(exec);
  return CUDA_SUCCESS;
}
SIM_API CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  SIM_CALL(cuGraphUpload);
  return run(exec, stream, false, true);
}
SIM_API CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
  SIM_CALL(cuGraphUpload_ptsz);
  return run(exec, stream, true, true);
}
SIM_API CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  SIM_CALL(cuGraphLaunch);
  return run(exec, stream, false, false);
}
SIM_API CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
  SIM_CALL(cuGraphLaunch_ptsz);
  return run(exec, stream, true, false);
}

SIM_API CUresult cuDeviceGraphMemTrim(CUdevice dev) {
  SIM_UNSAFE_CALL(cuDeviceGraphMemTrim);
  Driver& driver = Driver::get();
  if (!driver.valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const Guard guard(driver.lock());
  driver.graph_memory.trim(driver.physical(dev));
  return CUDA_SUCCESS;
}
SIM_API CUresult cuDeviceGetGraphMemAttribute(CUdevice dev, int attribute, void* value) {
  SIM_UNSAFE_CALL(cuDeviceGetGraphMemAttribute);
  Driver& driver = Driver::get();
  if (!driver.valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const Guard guard(driver.lock());
  const uint64_t* place = number(&driver.graph_memory.reserve(driver.physical(dev)), attribute);
  if (place == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<uint64_t*>(value) = *place;
  return CUDA_SUCCESS;
}
SIM_API CUresult cuDeviceSetGraphMemAttribute(CUdevice dev, int attribute, void* value) {
  SIM_UNSAFE_CALL(cuDeviceSetGraphMemAttribute);
  Driver& driver = Driver::get();
  if (!driver.valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const Guard guard(driver.lock());
  GraphMemory::Reserve* reserve = &driver.graph_memory.reserve(driver.physical(dev));
  if ((attribute != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH &&
       attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) ||
      value == nullptr || *static_cast<const uint64_t*>(value) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  // A high mark starts again from what there is.
  *number(reserve, attribute) = *number(reserve, attribute - 1);
  return CUDA_SUCCESS;
}
