// Launches graphs that allocate, round after round.
//
//   graph_loop [OPTION]... ROUNDS GRAPH...
//
// A GRAPH is sizes in MiB: "3000,3000" allocates and frees one after the other, "3000+3000" both at
// once with no order between them, and "1000+2000,2500" has the last come after both. Each round
// launches all graphs one after the other.
//
//   --streams=N  graph i runs in stream i modulo N
//   --leave      frees nothing in the graphs, but after each launch in stream order
//   --update     updates each graph with itself before each launch
//   --capture    makes them by capturing a stream, which allows no "+"
//
// Prints "launched=N refused=N bad=RC".
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "random/actor.h"

namespace client {
namespace {

struct Options {
  int streams = 1;
  bool leave = false, update = false, capture = false;
};

struct Made {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUstream stream = nullptr;
  std::vector<CUdeviceptr> left;
};

int bad = 0;
unsigned long long launched = 0, refused = 0;

bool good(int result) {
  if (result == kOutOfMemory) ++refused;
  if (result != 0 && result != kOutOfMemory && bad == 0) bad = result;
  return result == 0;
}

void add_nodes(const std::string& sizes, const Options& options, Made* made) {
  std::istringstream groups(sizes);
  std::vector<CUgraphNode> last;
  good(call("cuGraphCreate", &made->graph, 0u));
  for (std::string group; std::getline(groups, group, ',');) {
    std::istringstream members(group);
    std::vector<CUgraphNode> ends;
    for (std::string size; std::getline(members, size, '+');) {
      CUDA_MEM_ALLOC_NODE_PARAMS parameters = {};
      parameters.poolProps.allocType = 1;
      parameters.poolProps.location = {.type = kLocationDevice, .id = 0};
      parameters.bytesize = std::strtoull(size.c_str(), nullptr, 10) << 20;
      CUgraphNode allocated = nullptr, freed = nullptr;
      const CUgraphNode* const after = last.empty() ? nullptr : last.data();
      good(
          call("cuGraphAddMemAllocNode", &allocated, made->graph, after, last.size(), &parameters));
      if (options.leave) {
        made->left.push_back(parameters.dptr);
        ends.push_back(allocated);
        continue;
      }
      const CUgraphNode* const made_by = &allocated;
      good(call("cuGraphAddMemFreeNode", &freed, made->graph, made_by, size_t{1}, parameters.dptr));
      ends.push_back(freed);
    }
    last = ends;
  }
}

void capture(const std::string& sizes, Made* made) {
  std::istringstream all(sizes);
  CUstream stream = nullptr;
  good(call("cuStreamCreate", &stream, 1u));
  good(call("cuStreamBeginCapture_v2", stream, 0));
  for (std::string size; std::getline(all, size, ',');) {
    CUdeviceptr address = 0;
    good(call("cuMemAllocAsync", &address, size_t{std::strtoull(size.c_str(), nullptr, 10) << 20},
              stream));
    good(call("cuMemFreeAsync", address, stream));
  }
  good(call("cuStreamEndCapture", stream, &made->graph));
}

int run(int argc, char** argv) {
  Options options;
  int next = 1;
  for (; next < argc && std::string(argv[next]).rfind("--", 0) == 0; ++next) {
    const std::string option = argv[next];
    if (option.rfind("--streams=", 0) == 0) options.streams = std::atoi(option.c_str() + 10);
    if (option == "--leave") options.leave = true;
    if (option == "--update") options.update = true;
    if (option == "--capture") options.capture = true;
  }
  if (argc - next < 2 || options.streams < 1) {
    std::fprintf(stderr, "usage: graph_loop [OPTION]... ROUNDS GRAPH...\n");
    return 2;
  }
  const int rounds = std::atoi(argv[next]);
  World world;
  if (!api.begin(world)) return 3;
  std::vector<CUstream> streams(static_cast<size_t>(options.streams));
  for (CUstream& stream : streams) good(call("cuStreamCreate", &stream, 1u));
  std::vector<Made> all(static_cast<size_t>(argc - next - 1));
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string sizes = argv[next + 1 + static_cast<int>(i)];
    if (options.capture) {
      capture(sizes, &all[i]);
    } else {
      add_nodes(sizes, options, &all[i]);
    }
    good(call("cuGraphInstantiateWithFlags", &all[i].exec, all[i].graph, 0ull));
    all[i].stream = streams[i % streams.size()];
  }
  for (int round = 0; round < rounds; ++round) {
    for (Made& made : all) {
      CUgraphNode* const nothing = nullptr;
      int reason = 0;
      if (options.update) good(call("cuGraphExecUpdate", made.exec, made.graph, nothing, &reason));
      if (!good(call("cuGraphLaunch", made.exec, made.stream))) continue;
      ++launched;
      for (const CUdeviceptr address : made.left)
        good(call("cuMemFreeAsync", address, made.stream));
    }
  }
  std::printf("launched=%llu refused=%llu bad=%d\n", launched, refused, bad);
  return 0;
}

}  // namespace
}  // namespace client

int main(int argc, char** argv) {
  return client::run(argc, argv);
}
