// Graphs and their executable forms in one process.
// An allocation node has its address from the start, and memory only while a launch of its graph,
// or what that has left behind, needs it (graph_memory.h). A node is added after the nodes it
// depends on, so the order of adding is one in which they may run. All of it wants the driver's
// lock held.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "sim/cuda/graph_abi.h"
#include "sim/cuda/graph_memory.h"
#include "sim/cuda/reused.h"

namespace sim {

struct Graph;

struct GraphNode : Reused<GraphNode> {
  CUgraphNode handle = nullptr;
  int type = CU_GRAPH_NODE_TYPE_EMPTY;
  Graph* graph = nullptr;
  std::vector<GraphNode*> after;
  std::shared_ptr<GraphAllocation> memory;  // made or freed by this node
  Graph* child = nullptr;
};

struct Graph : Reused<Graph> {
  CUgraph handle = nullptr;
  uint64_t id = 0;                                // never used twice
  std::vector<std::unique_ptr<GraphNode>> nodes;  // in the order in which they were added
  Graph* parent = nullptr;                        // of a child: it ends with that
  bool capturing = false;                         // still being made by a capture
  CUgraphExec exec = nullptr;  // the only one there may be, if it has memory nodes

  bool has_memory() const;
};

struct GraphExec : Reused<GraphExec> {
  struct Step {
    int type;
    size_t graph;                // which of all graphs, counted depth first: 0 is the outermost
    std::vector<size_t> after;   // by their place in that graph
    std::vector<size_t> before;  // those that it runs right after, by their place among all steps
    std::shared_ptr<GraphAllocation> memory;
  };
  CUgraphExec handle = nullptr;
  std::vector<Step> steps;
  unsigned long long flags = 0;
  CUgraph source = nullptr;  // it has memory nodes, and may not be instantiated again
};

class Graphs {
 public:
  Graph* create();
  // With its children; false for a child, which belongs to its parent.
  bool destroy(Graph* graph);
  Graph* clone(const Graph& graph);
  Graph* find(CUgraph handle);
  GraphNode* find(CUgraphNode handle);
  GraphExec* find(CUgraphExec handle);

  GraphNode* add(Graph* graph, int type, const std::vector<GraphNode*>& after);
  CUresult add_allocation(Graph* graph, const std::vector<GraphNode*>& after,
                          CUDA_MEM_ALLOC_NODE_PARAMS* params, GraphNode** out);
  CUresult add_free(Graph* graph, const std::vector<GraphNode*>& after, uint64_t address,
                    GraphNode** out);
  CUresult add_child(Graph* graph, const std::vector<GraphNode*>& after, Graph* child, bool move,
                     GraphNode** out);

  CUresult instantiate(Graph* graph, unsigned long long flags, GraphExec** out);
  // Replaces what the execution does; *result and *where say why not.
  CUresult update(GraphExec* exec, Graph* graph, int* result, GraphNode** where);
  void destroy(GraphExec* exec);
  CUresult run(GraphExec* exec, CUstream stream, bool only_upload);

 private:
  // The graph and the execution may go their own ways.
  void part(CUgraph graph, CUgraphExec exec);

  uint64_t next_id_ = 1;
  std::unordered_map<CUgraph, std::unique_ptr<Graph>> graphs_;
  std::unordered_map<CUgraphNode, GraphNode*> nodes_;
  std::unordered_map<CUgraphExec, std::unique_ptr<GraphExec>> execs_;
};

}  // namespace sim
