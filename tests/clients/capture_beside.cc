// Captures a stream in one thread while another one makes calls that do no harm to a capture, and
// again with calls that end it. What the captures come to is printed, a line for each:
//
//   CALL MODE OWN THREAD call=RC end=RC
//
// The calls are made by another thread, and by the capturing one ("own"). MODE is the capture's:
// 0 global, 1 of the thread, 2 relaxed. The lines must not depend on what else is in the process.
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include "random/actor.h"

namespace client {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr int kReserved = 5;  // CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT

struct Beside {
  const char* name;
  std::function<int()> call;
};

// A graph that allocates and frees.
CUgraphExec make_exec(size_t bytes) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode node = nullptr, freed = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS parameters = {};
  parameters.poolProps.allocType = 1;
  parameters.poolProps.location = {.type = kLocationDevice, .id = 0};
  parameters.bytesize = bytes;
  const CUgraphNode* const nothing = nullptr;
  const CUgraphNode* const after = &node;
  call("cuGraphCreate", &graph, 0u);
  call("cuGraphAddMemAllocNode", &node, graph, nothing, size_t{0}, &parameters);
  call("cuGraphAddMemFreeNode", &freed, graph, after, size_t{1}, parameters.dptr);
  call("cuGraphInstantiateWithFlags", &exec, graph, 0ull);
  return exec;
}

int run() {
  World world;
  if (!api.begin(world)) return 3;
  CUstream captured = nullptr, other = nullptr;
  call("cuStreamCreate", &captured, 1u);
  call("cuStreamCreate", &other, 1u);
  CUdeviceptr held[4] = {}, address = 0, linear = 0;
  for (CUdeviceptr& each : held) call("cuMemAllocAsync", &each, 8 * kMiB, other);
  call("cuMemAlloc_v2", &linear, 4 * kMiB);
  CUmemoryPool pool = nullptr;
  call("cuDeviceGetDefaultMemPool", &pool, 0);
  const CUgraphExec exec = make_exec(16 * kMiB);
  size_t free = 0, total = 0;
  uint64_t value = 0;
  void* const out = &value;
  size_t next = 0;
  const auto asked = [&](size_t bytes) { return call("cuMemAllocAsync", &address, bytes, other); };
  const std::vector<Beside> all = {
      {"pool-allocation", [&] { return asked(kMiB); }},
      {"pool-growth", [&] { return asked(300 * kMiB); }},
      {"pool-refusal", [&] { return asked(700 * kMiB); }},
      {"pool-allocation-named",
       [&] { return call("cuMemAllocFromPoolAsync", &address, kMiB, pool, other); }},
      {"pool-free", [&] { return call("cuMemFreeAsync", held[next++ % 4], other); }},
      {"graph-upload", [&] { return call("cuGraphUpload", exec, other); }},
      {"graph-launch", [&] { return call("cuGraphLaunch", exec, other); }},
      {"graph-made", [&] { return make_exec(kMiB) != nullptr ? 0 : 1; }},
      {"current-pool", [&] { return call("cuDeviceSetMemPool", 0, pool); }},
      {"total", [&] { return call("cuDeviceTotalMem_v2", &total, 0); }},
      // These are unsafe themselves.
      {"info", [&] { return call("cuMemGetInfo_v2", &free, &total); }},
      {"linear", [&] { return call("cuMemAlloc_v2", &address, kMiB); }},
      {"linear-free",
       [&] {
         const int result = call("cuMemFree_v2", linear);
         if (result == 0) call("cuMemAlloc_v2", &linear, 4 * kMiB);
         return result;
       }},
      {"trim", [&] { return call("cuMemPoolTrimTo", pool, size_t{0}); }},
      {"graph-trim", [&] { return call("cuDeviceGraphMemTrim", 0); }},
      {"attribute", [&] { return call("cuMemPoolGetAttribute", pool, kReserved, out); }},
  };
  for (const Beside& beside : all) {
    for (int mode = 0; mode <= 2; ++mode) {
      for (const bool own : {false, true}) {
        CUgraph graph = nullptr;
        int result = -1;
        const int begun = call("cuStreamBeginCapture_v2", captured, mode);
        // Meanwhile the captured stream allocates, which is a node of the graph and no more.
        call("cuMemAllocAsync", &address, kMiB, captured);
        const auto make = [&] { result = beside.call(); };
        if (own) {
          make();
        } else {
          std::thread([&] {
            api.begin_thread(world);
            make();
          }).join();
        }
        const int ended = call("cuStreamEndCapture", captured, &graph);
        std::printf("%s mode=%d own=%d begin=%d call=%d end=%d\n", beside.name, mode, own, begun,
                    result, ended);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace client

int main() {
  return client::run();
}
