// Graphs and the memory that their allocation nodes take.
// An allocation has its address from the moment its node is made, and memory while an execution of
// the graph needs it. That memory comes from one reserve per device, which grows by what a launch
// needs at once, in steps of 32 MiB at least, and shrinks only when it is trimmed. All of it wants
// the driver's lock held.
#ifndef FRACGPU_TESTS_SIM_CUDA_GRAPH_H_
#define FRACGPU_TESTS_SIM_CUDA_GRAPH_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "cuda_memory_abi.h"
#include "cuda_pool.h"

struct CUDA_MEM_ALLOC_NODE_PARAMS {
  CUmemPoolProps poolProps;
  const CUmemAccessDesc* accessDescs;
  size_t accessDescCount;
  size_t bytesize;
  CUdeviceptr dptr;
};

namespace sim {

struct Graph;

struct GraphNode {
  static constexpr int kKernel = 0, kChild = 4, kEmpty = 5, kAlloc = 10, kFree = 11;
  int type = kEmpty;
  CUDA_MEM_ALLOC_NODE_PARAMS alloc = {};
  CUdeviceptr freed = 0;
  std::unique_ptr<Graph> child;
};

struct Graph {
  std::vector<std::unique_ptr<GraphNode>> nodes;  // in the order in which they were added
  std::unique_ptr<Graph> clone() const;
};

struct GraphExec {
  struct Step {
    CUdeviceptr address;
    uint64_t bytes;  // 0: frees the address
    int ordinal;
  };
  std::vector<Step> steps;
  bool frees_itself = false;
  void read(const Graph& graph);
};

class GraphMemory {
 public:
  uint64_t new_address(uint64_t bytes) { return space_.take((bytes + kPage - 1) / kPage, nullptr); }
  CUresult launch(GraphExec* exec, bool only_upload);
  // An allocation that a graph has left behind. False: there is none at this address.
  bool free(uint64_t address);
  void trim(int ordinal);
  Pool* reserve_of(int ordinal);

 private:
  static constexpr uint64_t kPage = 2u << 20;
  // What one launch took on one device: a part of the reserve, as long as an allocation lives.
  struct Block {
    uint64_t part;
    uint64_t live;
  };

  AddressSpace space_{0x430000000000ULL, 0x4b0000000000ULL};
  std::map<int, Pool*> reserves_;
  std::map<uint64_t, std::shared_ptr<Block>> live_;  // by the allocation's address
};

}  // namespace sim

#endif  // FRACGPU_TESTS_SIM_CUDA_GRAPH_H_
