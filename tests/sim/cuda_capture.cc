// The calls that capture a stream.
#include "cuda_capture.h"

#include <map>

#include "cuda_driver.h"

using sim::Driver;
using sim::Graph;
using sim::Guard;

struct CUgraph_st;
using CUgraph = CUgraph_st*;

namespace {

std::map<CUstream, std::unique_ptr<Graph>> captures;  // under the driver's lock

CUresult begin(CUstream stream) {
  // The default stream cannot be captured.
  if (reinterpret_cast<uintptr_t>(stream) <= 1) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  if (captures.count(stream) != 0) return CUDA_ERROR_INVALID_VALUE;
  captures[stream] = std::make_unique<Graph>();
  return CUDA_SUCCESS;
}

CUresult end(CUstream stream, CUgraph* out) {
  const Guard guard(Driver::get().lock());
  const auto found = captures.find(stream);
  if (found == captures.end() || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUgraph>(found->second.release());
  captures.erase(found);
  return CUDA_SUCCESS;
}

CUresult is_capturing(CUstream stream, int* status) {
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Guard guard(Driver::get().lock());
  *status = sim::graph_of_capture(stream) != nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace

namespace sim {

Graph* graph_of_capture(CUstream stream) {
  const auto found = captures.find(stream);
  return found != captures.end() ? found->second.get() : nullptr;
}

CUresult add_allocation(Graph* graph, CUDA_MEM_ALLOC_NODE_PARAMS* params, GraphNode** out) {
  Driver& driver = Driver::get();
  if (params->bytesize == 0 || params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  if (!driver.valid(params->poolProps.location.id)) return CUDA_ERROR_INVALID_DEVICE;
  params->dptr = driver.graph_memory.new_address(params->bytesize);
  if (params->dptr == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  graph->nodes.push_back(std::make_unique<GraphNode>());
  GraphNode* node = graph->nodes.back().get();
  node->type = GraphNode::kAlloc;
  node->alloc = *params;
  *out = node;
  return CUDA_SUCCESS;
}

CUresult capture_allocation(Graph* graph, CUstream, int ordinal, uint64_t bytes, CUdeviceptr* out) {
  CUDA_MEM_ALLOC_NODE_PARAMS params = {};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
  params.bytesize = bytes;
  GraphNode* node = nullptr;
  const CUresult result = add_allocation(graph, &params, &node);
  if (result == CUDA_SUCCESS) *out = params.dptr;
  return result;
}

CUresult capture_free(Graph* graph, CUstream, CUdeviceptr address) {
  graph->nodes.push_back(std::make_unique<GraphNode>());
  graph->nodes.back()->type = GraphNode::kFree;
  graph->nodes.back()->freed = address;
  return CUDA_SUCCESS;
}

}  // namespace sim

SIM_API CUresult cuStreamBeginCapture(CUstream stream) {
  SIM_CALL(cuStreamBeginCapture);
  return begin(stream);
}
SIM_API CUresult cuStreamBeginCapture_ptsz(CUstream stream) {
  SIM_CALL(cuStreamBeginCapture_ptsz);
  return begin(stream);
}
SIM_API CUresult cuStreamBeginCapture_v2(CUstream stream, int) {
  SIM_CALL(cuStreamBeginCapture_v2);
  return begin(stream);
}
SIM_API CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int) {
  SIM_CALL(cuStreamBeginCapture_v2_ptsz);
  return begin(stream);
}
SIM_API CUresult cuStreamEndCapture(CUstream stream, CUgraph* out) {
  SIM_CALL(cuStreamEndCapture);
  return end(stream, out);
}
SIM_API CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* out) {
  SIM_CALL(cuStreamEndCapture_ptsz);
  return end(stream, out);
}
SIM_API CUresult cuStreamIsCapturing(CUstream stream, int* status) {
  SIM_CALL(cuStreamIsCapturing);
  return is_capturing(stream, status);
}
SIM_API CUresult cuStreamIsCapturing_ptsz(CUstream stream, int* status) {
  SIM_CALL(cuStreamIsCapturing_ptsz);
  return is_capturing(stream, status);
}
SIM_API CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  SIM_CALL(cuThreadExchangeStreamCaptureMode);
  thread_local int current = 0;
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::swap(current, *mode);
  return CUDA_SUCCESS;
}
