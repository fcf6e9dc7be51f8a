// Walks a graph; see graph_needs.h.
#include "hooks/cuda/graph_needs.h"

#include <algorithm>
#include <atomic>

#include "shim/charge/graph_peak.h"
#include "shim/charge/linear.h"

namespace fracgpu::cuda {
namespace {

// Sorted by handle, to find a node's place.
struct Place {
  CUgraphNode node;
  uint32_t place;
};

// The graph's edges as places among its nodes. False if the driver does not report all edges, as
// with edges that let a node run before its predecessor is done.
bool read_edges(CUgraph graph, Scratch<CUgraphNode>& nodes, size_t node_count,
                Scratch<GraphEdge>& edges, size_t edge_count) {
  if (edge_count == 0) return true;
  Scratch<CUgraphNode> from(edge_count), to(edge_count);
  Scratch<Place> places(node_count);
  size_t count = edge_count;
  if (!from || !to || !places || !edges ||
      real::cuGraphGetEdges(graph, from.data(), to.data(), &count) != kSuccess ||
      count != edge_count) {
    return false;
  }
  for (uint32_t i = 0; i < node_count; ++i) places[i] = {nodes[i], i};
  const auto less = [](const Place& a, const Place& b) { return a.node < b.node; };
  std::sort(places.data(), places.data() + node_count, less);
  const auto place_of = [&](CUgraphNode node) {
    const Place* const found =
        std::lower_bound(places.data(), places.data() + node_count, Place{node, 0}, less);
    return found != places.data() + node_count && found->node == node ? found->place : UINT32_MAX;
  };
  for (size_t i = 0; i < edge_count; ++i) edges[i] = {place_of(from[i]), place_of(to[i])};
  return true;
}

// Whether the steps release each of the graph's allocations.
bool releases_all(Scratch<GraphStep>& steps, size_t count, size_t allocations) {
  Scratch<uint64_t> released(count);
  if (!released) return false;
  size_t releases = 0, matched = 0;
  for (size_t i = 0; i < count; ++i) {
    if (steps[i].kind == GraphStep::Kind::release) released[releases++] = steps[i].address;
  }
  std::sort(released.data(), released.data() + releases);
  for (size_t i = 0; i < count; ++i) {
    matched +=
        steps[i].kind == GraphStep::Kind::allocation &&
                std::binary_search(released.data(), released.data() + releases, steps[i].address)
            ? 1
            : 0;
  }
  return matched == allocations;
}

// A graph's nodes and their steps. Only steps that allocate or free are set.
struct Steps {
  explicit Steps(size_t count) : nodes(count), steps(count) {}

  Scratch<CUgraphNode> nodes;
  Scratch<GraphStep> steps;
  size_t count = 0, allocations = 0, releases = 0, kernels = 0;
};

void add_needs(CUgraph graph, GraphNeeds& needs, int depth);

// Reads the nodes one by one, and adds the needs of child graphs.
void read_steps(Steps& read, GraphNeeds& needs, int depth) {
  for (size_t i = 0; i < read.count; ++i) {
    const CUgraphNode node = read.nodes[i];
    GraphStep& step = read.steps[i] = {};
    int type = -1;
    CUgraph child = nullptr;
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {};
    CUdeviceptr address = 0;
    if (real::cuGraphNodeGetType(node, &type) != kSuccess) continue;
    if (type == kKernelNode) ++read.kernels;
    if (type == kGraphNode && real::cuGraphChildGraphNodeGetGraph(node, &child) == kSuccess) {
      add_needs(child, needs, depth + 1);
    } else if (type == kAllocNode &&
               real::cuGraphMemAllocNodeGetParams(node, &parameters) == kSuccess) {
      const int device = device_of(parameters.poolProps.location);
      if (device < 0 || device >= GraphTable::kMaxDevices) continue;
      step = {.address = parameters.dptr,
              .units = linear_size(std::max(parameters.bytesize, kPageBytes)).units,
              .device = device,
              .kind = GraphStep::Kind::allocation};
      ++read.allocations;
    } else if (type == kFreeNode && real::cuGraphMemFreeNodeGetParams(node, &address) == kSuccess) {
      step.address = address;
      step.kind = GraphStep::Kind::release;
      ++read.releases;
    }
  }
}

// The number of chains that cover the graph. At most so many nodes can run at once. A node
// continues the chain of one of its predecessors unless another node does. If the driver does not
// report the edges, each node is a chain.
size_t count_branches(CUgraph graph, Steps& read) {
  size_t edge_count = 0;
  if (real::cuGraphGetEdges(graph, nullptr, nullptr, &edge_count) != kSuccess) return read.count;
  Scratch<GraphEdge> edges(edge_count);
  Scratch<bool> is_followed(read.count), follows(read.count);
  if (!is_followed || !follows || !read_edges(graph, read.nodes, read.count, edges, edge_count))
    return read.count;
  size_t branches = read.count;
  for (size_t i = 0; i < edge_count; ++i) {
    const auto [from, to] = edges[i];
    if (from >= read.count || to >= read.count || is_followed[from] || follows[to]) continue;
    is_followed[from] = follows[to] = true;
    --branches;
  }
  return branches;
}

// Adds the peak along the edges. False if it cannot be determined.
bool add_peaks(CUgraph graph, Steps& read, GraphNeeds& needs) {
  size_t edge_count = 0;
  if (read.allocations < 2 || read.releases == 0 ||
      real::cuGraphGetEdges(graph, nullptr, nullptr, &edge_count) != kSuccess) {
    return false;
  }
  Scratch<GraphEdge> edges(edge_count);
  return read_edges(graph, read.nodes, read.count, edges, edge_count) &&
         add_graph_peaks(read.steps.data(), read.count, edges.data(), edge_count, needs.units,
                         GraphTable::kMaxDevices);
}

void add_needs(CUgraph graph, GraphNeeds& needs, int depth) {
  // Limits the recursion to 6 KiB of stack: 336 bytes for each nested graph.
  constexpr int kMaxDepth = 16;
  size_t count = 0;
  if (depth > kMaxDepth || real::cuGraphGetNodes(graph, nullptr, &count) != kSuccess || count == 0)
    return;
  Steps read(count);
  if (!read.nodes || !read.steps ||
      real::cuGraphGetNodes(graph, read.nodes.data(), &count) != kSuccess) {
    return;
  }
  read.count = count;
  read_steps(read, needs, depth);
  needs.kernels += read.kernels;
  if (read.kernels != 0) needs.branches += count_branches(graph, read);
  if (read.allocations == 0) return;
  needs.frees_all = needs.frees_all && releases_all(read.steps, count, read.allocations);
  if (add_peaks(graph, read, needs)) return;
  for (size_t i = 0; i < count; ++i) {
    if (read.steps[i].kind == GraphStep::Kind::allocation)
      needs.units[read.steps[i].device] += read.steps[i].units;
  }
}

// The driver's version, as CUDA_VERSION. 0 if the driver does not report it.
int driver_version() {
  static std::atomic<int> known{0};
  int version = known.load(std::memory_order_relaxed);
  if (version == 0 && real::cuDriverGetVersion(&version) == kSuccess)
    known.store(version, std::memory_order_relaxed);
  return version;
}

}  // namespace

GraphNeeds::GraphNeeds(CUgraph graph) {
  add_needs(graph, *this, 0);
}

// Measured by the kernel's count for chains of 1 to 4,000 kernels and for 1 to 3,000 kernels side
// by side (tests/kernel/nvidia/figures_test.py): libcuda 535.261.03 takes 65.5 KiB a kernel and
// 96.3 KiB more for a branch, 550.163.01 takes 8.9 and 95.6 KiB, 470.256.02 takes 64.5 and
// 72.7 KiB. Other versions are charged as 535, which takes most.
uint64_t GraphNeeds::instantiated_bytes() const {
  constexpr int kMeasuredToTakeLess = 12040;  // CUDA 12.4, which driver 550 has
  constexpr uint64_t kBranch = 98u << 10;
  const uint64_t kernel = driver_version() == kMeasuredToTakeLess ? 10u << 10 : 68u << 10;
  return kernels * kernel + std::min(branches, kernels) * kBranch;
}

}  // namespace fracgpu::cuda
