// Capture of a stream: what it is told becomes nodes of a graph instead of being done.
#ifndef FRACGPU_TESTS_SIM_CUDA_CAPTURE_H_
#define FRACGPU_TESTS_SIM_CUDA_CAPTURE_H_

#include "cuda_abi.h"
#include "cuda_graph.h"

namespace sim {

// The graph that a stream is captured into, or null. With the driver's lock held, as all of these.
Graph* graph_of_capture(CUstream stream);
CUresult add_allocation(Graph* graph, CUDA_MEM_ALLOC_NODE_PARAMS* params, GraphNode** out);
CUresult capture_allocation(Graph* graph, CUstream stream, int ordinal, uint64_t bytes,
                            CUdeviceptr* out);
CUresult capture_free(Graph* graph, CUstream stream, CUdeviceptr address);

}  // namespace sim

#endif  // FRACGPU_TESTS_SIM_CUDA_CAPTURE_H_
