// What is done in the order of streams: pools, captures and graphs.
#include <unistd.h>

#include "measurement.h"

namespace client {
namespace {

CUdeviceptr pointer;
CUmemoryPool pool, other_pool;
CUstream stream;
CUevent event;
CUgraph graph;
CUgraphExec exec;

const CUmemPoolProps* properties() {
  static CUmemPoolProps wanted = {};
  wanted.allocType = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
  wanted.handleTypes = kPosixDescriptor;
  wanted.location = {.type = kLocationDevice, .id = 0};
  return &wanted;
}

void measure_allocations(AllCounts& all) {
  for (const std::string suffix : {"", "_ptsz"}) {
    const std::string allocate = "cuMemAllocAsync" + suffix, free = "cuMemFreeAsync" + suffix;
    const std::string from_pool = "cuMemAllocFromPoolAsync" + suffix;
    Measurement()
        .step(allocate, [=] { call(allocate.c_str(), &pointer, kPage, shared.stream); })
        .step(free, [=] { call(free.c_str(), pointer, shared.stream); })
        .step(from_pool, [=] { call(from_pool.c_str(), &pointer, kPage, pool, shared.stream); })
        .unmeasured([=] { call(free.c_str(), pointer, shared.stream); })
        .run(all);
  }
  // In the default stream, of which there is one for each context.
  const CUstream none = nullptr;
  Measurement()
      .step("cuMemAllocAsync (stream 0)", [=] { call("cuMemAllocAsync", &pointer, kPage, none); })
      .step("cuMemFreeAsync (stream 0)", [=] { call("cuMemFreeAsync", pointer, none); })
      .run(all);
}

void measure_places(AllCounts& all) {
  static CUmemLocation place = {.type = kLocationDevice, .id = 0};
  constexpr int kPinned = 1;
  Measurement()
      .step("cuMemGetDefaultMemPool",
            [] { call("cuMemGetDefaultMemPool", &other_pool, &place, kPinned); })
      .step("cuMemGetMemPool", [] { call("cuMemGetMemPool", &other_pool, &place, kPinned); })
      .step("cuMemSetMemPool", [] { call("cuMemSetMemPool", &place, kPinned, pool); })
      .step("cuDeviceSetMemPool", [] { call("cuDeviceSetMemPool", 0, pool); })
      .step("cuMemAllocAsync (after cuDeviceSetMemPool)",
            [] { call("cuMemAllocAsync", &pointer, kPage, shared.stream); })
      .unmeasured([] { call("cuMemFreeAsync", pointer, shared.stream); })
      .run(all);
}

// Pools that come and go, without and with memory in them.
void measure_lives(AllCounts& all) {
  Measurement()
      .step("cuMemPoolCreate", [] { call("cuMemPoolCreate", &other_pool, properties()); })
      .step("cuMemPoolDestroy", [] { call("cuMemPoolDestroy", other_pool); })
      .run(all);
  Measurement()
      .unmeasured([] {
        call("cuMemPoolCreate", &other_pool, properties());
        call("cuMemAllocFromPoolAsync", &pointer, kPage, other_pool, shared.stream);
        call("cuMemFreeAsync", pointer, shared.stream);
      })
      .step("cuMemPoolDestroy (with memory)", [] { call("cuMemPoolDestroy", other_pool); })
      .run(all);
}

void measure_exports(AllCounts& all) {
  static int descriptor;
  static CUmemPoolPtrExportData data;
  static CUmemoryPool imported;
  constexpr unsigned long long kNoFlags = 0;
  const auto handle = [] { return reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)); };
  call("cuMemPoolCreate", &other_pool, properties());
  Measurement()
      .step("cuMemPoolExportToShareableHandle",
            [=] {
              call("cuMemPoolExportToShareableHandle", static_cast<void*>(&descriptor), other_pool,
                   kPosixDescriptor, kNoFlags);
            })
      .unmeasured([] { close(descriptor); })
      .run(all);
  call("cuMemPoolExportToShareableHandle", static_cast<void*>(&descriptor), other_pool,
       kPosixDescriptor, kNoFlags);
  call("cuMemPoolImportFromShareableHandle", &imported, handle(), kPosixDescriptor, kNoFlags);
  close(descriptor);
  call("cuMemAllocFromPoolAsync", &pointer, kPage, other_pool, shared.stream);
  static CUdeviceptr theirs;
  Measurement()
      .step("cuMemPoolExportPointer", [] { call("cuMemPoolExportPointer", &data, pointer); })
      .step("cuMemPoolImportPointer",
            [] { call("cuMemPoolImportPointer", &theirs, imported, &data); })
      .step("cuMemFreeAsync (imported)", [] { call("cuMemFreeAsync", theirs, shared.stream); })
      .run(all);
  call("cuMemFreeAsync", pointer, shared.stream);
  Measurement()
      .step("cuMemAllocFromPoolAsync (exported)",
            [] { call("cuMemAllocFromPoolAsync", &pointer, kPage, other_pool, shared.stream); })
      .unmeasured([] { call("cuMemFreeAsync", pointer, shared.stream); })
      .run(all);
  call("cuMemPoolDestroy", imported);
  call("cuMemPoolDestroy", other_pool);
}

void capture(bool allocates) {
  void* const none = nullptr;
  call("cuStreamBeginCapture_v2", shared.stream, 2);
  if (allocates) {
    call("cuMemAllocAsync", &pointer, kPage, shared.stream);
    call("cuMemFreeAsync", pointer, shared.stream);
  } else {
    call("cuLaunchKernel", shared.function, 1u, 1u, 1u, 1u, 1u, 1u, 0u, shared.stream, none, none);
  }
  call("cuStreamEndCapture", shared.stream, &graph);
}

void measure_launches(AllCounts& all, const std::string& which, bool allocates) {
  capture(allocates);
  call("cuGraphInstantiateWithFlags", &exec, graph, 0ull);
  for (const char* name :
       {"cuGraphLaunch", "cuGraphLaunch_ptsz", "cuGraphUpload", "cuGraphUpload_ptsz"}) {
    Measurement().step(name + which, [=] { call(name, exec, shared.stream); }).run(all);
  }
  call("cuStreamSynchronize", shared.stream);
  call("cuGraphExecDestroy", exec);
  call("cuGraphDestroy", graph);
}

void measure_executions(AllCounts& all, const std::string& which, bool allocates) {
  struct Parameters {  // CUDA_GRAPH_INSTANTIATE_PARAMS
    unsigned long long flags = 0;
    CUstream upload_stream = nullptr;
    CUgraphNode error_node = nullptr;
    int result = 0;
  };
  capture(allocates);
  const auto destroy = [] { call("cuGraphExecDestroy", exec); };
  const CUgraphNode* const no_node = nullptr;
  char* const no_log = nullptr;
  Measurement()
      .step("cuGraphInstantiateWithFlags" + which,
            [] { call("cuGraphInstantiateWithFlags", &exec, graph, 0ull); })
      .step("cuGraphExecUpdate_v2" + which,
            [] {
              char result[64] = {};  // CUgraphExecUpdateResultInfo, which is shorter
              call("cuGraphExecUpdate_v2", exec, graph, static_cast<void*>(result));
            })
      .step("cuGraphExecUpdate" + which,
            [] {
              CUgraphNode node = nullptr;
              int result = 0;
              call("cuGraphExecUpdate", exec, graph, &node, &result);
            })
      .step("cuGraphExecDestroy" + which, destroy)
      .run(all);
  for (const char* name : {"cuGraphInstantiate", "cuGraphInstantiate_v2"}) {
    Measurement()
        .step(name + which, [=] { call(name, &exec, graph, no_node, no_log, size_t{0}); })
        .unmeasured(destroy)
        .run(all);
  }
  for (const char* name : {"cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams_ptsz"}) {
    Measurement()
        .step(name + which,
              [=] {
                Parameters parameters;
                call(name, &exec, graph, static_cast<void*>(&parameters));
              })
        .unmeasured(destroy)
        .run(all);
  }
  call("cuGraphDestroy", graph);
}

}  // namespace

void measure_pools(AllCounts& all) {
  call("cuDeviceGetDefaultMemPool", &pool, 0);
  measure_allocations(all);
  measure_places(all);
  measure_lives(all);
  measure_exports(all);
  Measurement()
      .step("cuMemPoolTrimTo", [] { call("cuMemPoolTrimTo", pool, size_t{1} << 30); })
      .run(all);
  call("cuStreamSynchronize", shared.stream);
  call("cuMemPoolTrimTo", pool, size_t{0});
}

void measure_streams(AllCounts& all) {
  constexpr int kGlobal = 0;
  for (const std::string suffix : {"", "_ptsz"}) {
    const std::string old = "cuStreamBeginCapture" + suffix;
    const std::string begin = "cuStreamBeginCapture_v2" + suffix;
    const std::string end = "cuStreamEndCapture" + suffix;
    const std::string allocate = "cuMemAllocAsync" + suffix, free = "cuMemFreeAsync" + suffix;
    const auto discard = [] { call("cuGraphDestroy", graph); };
    Measurement()
        .step(old, [=] { call(old.c_str(), shared.stream); })
        .step(end, [=] { call(end.c_str(), shared.stream, &graph); })
        .unmeasured(discard)
        .step(begin, [=] { call(begin.c_str(), shared.stream, kGlobal); })
        .step(allocate + " (captured)",
              [=] { call(allocate.c_str(), &pointer, kPage, shared.stream); })
        .step(free + " (captured)", [=] { call(free.c_str(), pointer, shared.stream); })
        .unmeasured([=] { call(end.c_str(), shared.stream, &graph); })
        .unmeasured(discard)
        .run(all);
  }
  for (const std::string suffix : {"", "_ptsz"}) {
    const std::string record = "cuEventRecord" + suffix, wait = "cuStreamWaitEvent" + suffix;
    const std::string with_flags = "cuEventRecordWithFlags" + suffix;
    const std::string destroy = suffix.empty() ? "cuEventDestroy_v2" : "cuEventDestroy";
    Measurement()
        .unmeasured([] { call("cuEventCreate", &event, 0u); })
        .step(record, [=] { call(record.c_str(), event, shared.stream); })
        .step(with_flags, [=] { call(with_flags.c_str(), event, shared.stream, 0u); })
        .step(wait, [=] { call(wait.c_str(), shared.stream, event, 0u); })
        .step(destroy, [=] { call(destroy.c_str(), event); })
        .run(all);
  }
  const auto destroy = [] { call("cuStreamDestroy_v2", stream); };
  Measurement()
      .step("cuStreamCreate", [] { call("cuStreamCreate", &stream, 1u); })
      .unmeasured(destroy)
      .step("cuStreamCreateWithPriority",
            [] { call("cuStreamCreateWithPriority", &stream, 1u, 0); })
      .unmeasured(destroy)
      .run(all);
  for (const char* name : {"cuStreamDestroy_v2", "cuStreamDestroy"}) {
    Measurement()
        .unmeasured([] { call("cuStreamCreate", &stream, 1u); })
        .step(name, [=] { call(name, stream); })
        .run(all);
  }
}

void measure_graphs(AllCounts& all) {
  for (const bool allocates : {false, true}) {
    const std::string which = allocates ? " (allocates)" : "";
    measure_launches(all, which, allocates);
    measure_executions(all, which, allocates);
  }
  Measurement().step("cuDeviceGraphMemTrim", [] { call("cuDeviceGraphMemTrim", 0); }).run(all);
}

}  // namespace client
