// Graphs whose nodes allocate, and graphs that do not.
#include <vector>

#include "actor.h"

namespace client {
namespace {

class Graphs : public Actor {
 public:
  Graphs(const World& world, uint64_t seed) : Actor(world, seed) {
    good(call("cuStreamCreate", &stream_, 1u), "cuStreamCreate");
  }

  void move() override {
    switch (below(8)) {
      case 0:
        chance(30) ? capture() : make();
        break;
      case 1:
        if (!graphs_.empty()) destroy();
        break;
      case 2:
        good(call("cuDeviceGraphMemTrim", 0), "cuDeviceGraphMemTrim");
        break;
      case 3:
        good(call("cuStreamSynchronize", stream_), "cuStreamSynchronize");
        break;
      default:
        launch();
    }
  }

  void clear() override {
    while (!graphs_.empty()) destroy();
    good(call("cuStreamSynchronize", stream_), "cuStreamSynchronize");
    good(call("cuDeviceGraphMemTrim", 0), "cuDeviceGraphMemTrim");
  }

 private:
  // One to four allocations, each freed in the graph, so that it can be launched again.
  void make() {
    if (graphs_.size() > 8) return;
    CUgraph graph = nullptr;
    if (!good(call("cuGraphCreate", &graph, 0u), "cuGraphCreate")) return;
    CUgraphNode last = nullptr;
    for (uint64_t n = below(5); n > 0; --n) {
      CUDA_MEM_ALLOC_NODE_PARAMS parameters = {};
      parameters.poolProps.allocType = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
      parameters.poolProps.location = {.type = kLocationDevice, .id = 0};
      parameters.bytesize = size();
      CUgraphNode node = nullptr, freed = nullptr;
      const CUgraphNode* after = last != nullptr ? &last : nullptr;
      if (!good(call("cuGraphAddMemAllocNode", &node, graph, after, size_t{last != nullptr},
                     &parameters),
                "cuGraphAddMemAllocNode")) {
        break;
      }
      const CUgraphNode* allocation = &node;
      good(call("cuGraphAddMemFreeNode", &freed, graph, allocation, size_t{1}, parameters.dptr),
           "cuGraphAddMemFreeNode");
      last = chance(50) ? freed : node;
    }
    keep(graph);
  }

  // The same by capturing a stream: nothing may be charged before the graph runs.
  void capture() {
    if (graphs_.size() > 8) return;
    CUgraph graph = nullptr;
    if (!good(call("cuStreamBeginCapture_v2", stream_, 1), "cuStreamBeginCapture")) return;
    for (uint64_t n = below(4); n > 0; --n) {
      CUdeviceptr address = 0;
      const bool per_thread = chance(50);
      if (!good(call(per_thread ? "cuMemAllocAsync_ptsz" : "cuMemAllocAsync", &address,
                     size_t{size()}, stream_),
                "cuMemAllocAsync in a capture")) {
        break;
      }
      good(call("cuMemFreeAsync", address, stream_), "cuMemFreeAsync in a capture");
    }
    if (good(call("cuStreamEndCapture", stream_, &graph), "cuStreamEndCapture")) keep(graph);
  }

  void keep(CUgraph graph) {
    CUgraphExec exec = nullptr;
    if (good(call("cuGraphInstantiateWithFlags", &exec, graph, 0ull), "cuGraphInstantiate")) {
      graphs_.push_back(exec);
    }
    good(call("cuGraphDestroy", graph), "cuGraphDestroy");
  }

  void launch() {
    if (graphs_.empty()) return make();
    const CUgraphExec exec = graphs_[below(graphs_.size())];
    good(call(chance(80) ? "cuGraphLaunch" : "cuGraphUpload", exec, stream_), "cuGraphLaunch");
  }

  void destroy() {
    std::swap(graphs_[below(graphs_.size())], graphs_.back());
    good(call("cuStreamSynchronize", stream_), "cuStreamSynchronize");
    good(call("cuGraphExecDestroy", graphs_.back()), "cuGraphExecDestroy");
    graphs_.pop_back();
  }

  CUstream stream_ = nullptr;
  std::vector<CUgraphExec> graphs_;
};

}  // namespace

std::unique_ptr<Actor> make_graphs(const World& world, uint64_t seed) {
  return std::make_unique<Graphs>(world, seed);
}

}  // namespace client
