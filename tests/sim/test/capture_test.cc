// Tests of stream capture: what becomes a node and takes no memory, what is refused meanwhile, and
// what makes a capture worthless. A context costs 64 MiB here.
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "sim/test/graph_calls.h"

using namespace simtest;

namespace {

constexpr uint64_t kContext = 64;

uint64_t mib(TestNode& node) {
  return node->used(0) / kMiB;
}

// In another thread of the context.
int in_thread(const std::function<int()>& call) {
  int result = -1;
  std::thread([&] {
    CUcontext context = nullptr;
    cuda<int(CUcontext*, int)>("cuDevicePrimaryCtxRetain")(&context, 0);
    cuda<int(CUcontext)>("cuCtxSetCurrent")(context);
    result = call();
  }).join();
  return result;
}

TEST(SimCapture, AllocationsBecomeNodes) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUstream stream = stream_create(), other = stream_create();
    CUgraph graph = nullptr;
    Pointer a = 0, b = 0;
    EXPECT_EQ(capturing(stream), 0);
    EXPECT_EQ(end_capture(stream, &graph), 401);
    ASSERT_EQ(begin_capture(stream), 0);
    EXPECT_EQ(begin_capture(stream), 401);
    EXPECT_EQ(capturing(stream), 1);
    EXPECT_EQ(capturing(other), 0);
    ASSERT_EQ(alloc_async(&a, 10 * kMiB, stream), 0);
    ASSERT_EQ(pool_alloc(&b, 20 * kMiB, default_pool(), stream), 0);
    EXPECT_EQ(mib(node), kContext);
    int word = 0;
    ASSERT_EQ((cuda<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        CUstream, void*, void*)>("cuLaunchKernel")(&word, 1, 1, 1, 1, 1, 1, 0,
                                                                   stream, nullptr, nullptr)),
              0);
    ASSERT_EQ(free_async(a, stream), 0);
    EXPECT_EQ(free_async(a, stream), 1);
    // Another stream is what it always was.
    Pointer real = 0;
    ASSERT_EQ(alloc_async(&real, kMiB, other), 0);
    EXPECT_EQ(mib(node), kContext + 32);
    ASSERT_EQ(free_async(real, other), 0);
    ASSERT_EQ(stream_sync(other), 0);
    ASSERT_EQ(end_capture(stream, &graph), 0);
    EXPECT_EQ(capturing(stream), 0);
    size_t count = 8;
    CUgraphNode nodes[8];
    ASSERT_EQ(nodes_of(graph, nodes, &count), 0);
    ASSERT_EQ(count, 4u);
    const int types[] = {CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                         CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEM_FREE};
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(type_of(nodes[i]), types[i]) << i;
    EXPECT_EQ(nodes[4], nullptr);
    CUDA_MEM_ALLOC_NODE_PARAMS params = {};
    ASSERT_EQ((cuda<int(CUgraphNode, CUDA_MEM_ALLOC_NODE_PARAMS*)>("cuGraphMemAllocNodeGetParams")(
                  nodes[1], &params)),
              0);
    EXPECT_EQ(params.dptr, b);
    EXPECT_EQ(params.bytesize, 20 * kMiB);
    const CUgraphExec exec = exec_of(graph);
    EXPECT_EQ(mib(node), kContext);
    ASSERT_EQ(launch(exec, stream), 0);
    EXPECT_EQ(mib(node), kContext + 32);
    EXPECT_EQ(graph_used(), 20u);
    EXPECT_EQ(cu_free(a), 1);
    EXPECT_EQ(cu_free(b), 0);
  });
}

TEST(SimCapture, PerThreadStream) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const auto per_thread = reinterpret_cast<CUstream>(2);
    ASSERT_EQ(cuda<int(CUstream)>("cuStreamBeginCapture_ptsz")(nullptr), 0);
    EXPECT_EQ(capturing(per_thread), 1);
    int status = -1;
    EXPECT_EQ((cuda<int(CUstream, int*)>("cuStreamIsCapturing_ptsz")(nullptr, &status)), 0);
    EXPECT_EQ(status, 1);
    Pointer a = 0;
    ASSERT_EQ((cuda<int(Pointer*, size_t, CUstream)>("cuMemAllocAsync_ptsz")(&a, kMiB, nullptr)),
              0);
    EXPECT_EQ(mib(node), kContext);
    std::thread([&] {
      CUcontext context = nullptr;
      cuda<int(CUcontext*, int)>("cuDevicePrimaryCtxRetain")(&context, 0);
      cuda<int(CUcontext)>("cuCtxSetCurrent")(context);
      EXPECT_EQ(capturing(per_thread), 0);  // another thread's is another stream
    }).join();
    CUgraph graph = nullptr;
    ASSERT_EQ((cuda<int(CUstream, CUgraph*)>("cuStreamEndCapture_ptsz")(nullptr, &graph)), 0);
    EXPECT_EQ(graph_destroy(graph), 0);
    EXPECT_EQ(graph_destroy(graph), 1);
  });
}

TEST(SimCapture, TheLegacyStreamStaysOut) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUstream aside = stream_create(1), blocking = stream_create(0);
    EXPECT_EQ(begin_capture(nullptr), 900);
    EXPECT_EQ(begin_capture(reinterpret_cast<CUstream>(1)), 900);
    CUgraph graph = nullptr;
    Pointer a = 0;
    ASSERT_EQ(begin_capture(aside, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
    EXPECT_EQ(capturing(nullptr), 0);
    ASSERT_EQ(alloc_async(&a, kMiB, nullptr), 0);
    ASSERT_EQ(stream_sync(nullptr), 0);
    ASSERT_EQ(end_capture(aside, &graph), 0);
    ASSERT_EQ(begin_capture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
    EXPECT_EQ(capturing(nullptr), -906);
    EXPECT_EQ(capturing(blocking), 1);  // asking does no harm
    EXPECT_EQ(alloc_async(&a, kMiB, nullptr), 906);
    EXPECT_EQ(capturing(blocking), 2);
    EXPECT_EQ(alloc_async(&a, kMiB, blocking), 901);
    EXPECT_EQ(end_capture(blocking, &graph), 901);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(capturing(blocking), 0);
    EXPECT_EQ(alloc_async(&a, kMiB, nullptr), 0);
  });
}

TEST(SimCapture, WaitsAndUnsafeCallsEndIt) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUstream stream = stream_create();
    const CUevent event = event_create();
    CUgraph graph = nullptr;
    Pointer a = 0;
    const auto refused = [&](int mode, auto&& call) {
      EXPECT_EQ(begin_capture(stream, mode), 0);
      const int result = call();
      const int ended = end_capture(stream, &graph);
      EXPECT_EQ(ended, result == 0 ? 0 : 901);
      return result;
    };
    const auto alloc = [&] { return cu_alloc(&a, 512); };
    EXPECT_EQ(refused(2, [&] { return stream_sync(stream); }), 900);
    EXPECT_EQ(refused(2, [&] { return context_sync(); }), 900);
    EXPECT_EQ(refused(0, alloc), 900);
    EXPECT_EQ(refused(1, alloc), 900);
    EXPECT_EQ(refused(2, alloc), 0);
    EXPECT_EQ(refused(0, [&] { return in_thread(alloc); }), 900);
    EXPECT_EQ(refused(1, [&] { return in_thread(alloc); }), 0);
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    ASSERT_EQ(cuda<int(int*)>("cuThreadExchangeStreamCaptureMode")(&mode), 0);
    EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_EQ(refused(0, alloc), 0);
    ASSERT_EQ(cuda<int(int*)>("cuThreadExchangeStreamCaptureMode")(&mode), 0);
    EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    // An event of the capture is nothing to wait for.
    ASSERT_EQ(begin_capture(stream), 0);
    ASSERT_EQ(event_record(event, stream), 0);
    EXPECT_EQ(event_sync(event), 907);
    EXPECT_EQ(in_thread([&] { return end_capture(stream, &graph); }), 908);
    EXPECT_EQ(end_capture(stream, &graph), 0);
    // Nothing is left of a capture whose stream goes.
    ASSERT_EQ(begin_capture(stream), 0);
    ASSERT_EQ(cuda<int(CUstream)>("cuStreamDestroy_v2")(stream), 0);
    EXPECT_EQ(alloc(), 0);
  });
}

struct Beside {
  const char* name;
  bool unsafe;
  std::function<int()> call;
};

std::vector<Beside> calls_beside(CUstream other) {
  static uint64_t value = 0;
  static Pointer pointer = 0;
  static CUmemoryPool pool = nullptr;
  static void* module = nullptr;
  static size_t free = 0, total = 0;
  return {
      {"cuMemPoolGetAttribute", true, [] { return pool_get(default_pool(), 5, &value); }},
      {"cuMemPoolTrimTo", true, [] { return pool_trim(default_pool(), 0); }},
      {"cuMemPoolCreate", true, [] { return pool_create(&pool); }},
      {"cuDeviceGraphMemTrim", true, [] { return graph_trim(); }},
      {"cuEventQuery", true, [] { return cuda<int(CUevent)>("cuEventQuery")(event_create()); }},
      {"cuStreamQuery", true, [=] { return cuda<int(CUstream)>("cuStreamQuery")(other); }},
      {"cuModuleLoadData", true,
       [] { return cuda<int(void**, const void*)>("cuModuleLoadData")(&module, "any"); }},
      {"cuMemGetInfo_v2", true,
       [] { return cuda<int(size_t*, size_t*)>("cuMemGetInfo_v2")(&free, &total); }},
      {"cuMemAlloc_v2", true, [] { return cu_alloc(&pointer, kMiB); }},
      // What a stream is told, and questions that no source calls unsafe.
      {"cuMemAllocAsync", false, [=] { return alloc_async(&pointer, kMiB, other); }},
      {"cuMemFreeAsync", false,
       [=] {
         const int result = alloc_async(&pointer, kMiB, other);
         return result == 0 ? free_async(pointer, other) : result;
       }},
      {"cuStreamIsCapturing", false, [=] { return capturing(other); }},
      {"cuCtxGetCurrent", false,
       [] {
         CUcontext context = nullptr;
         return cuda<int(CUcontext*)>("cuCtxGetCurrent")(&context);
       }},
  };
}

TEST(SimCapture, EachUnsafeCallEndsItAndNoOther) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUstream stream = stream_create(), other = stream_create();
    for (const Beside& beside : calls_beside(other)) {
      for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
           ++mode) {
        for (const bool own : {true, false}) {
          for (const bool relaxed : {false, true}) {
            const auto call = [&] {
              int thread_mode = relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED : 0;
              cuda<int(int*)>("cuThreadExchangeStreamCaptureMode")(&thread_mode);
              const int result = beside.call();
              cuda<int(int*)>("cuThreadExchangeStreamCaptureMode")(&thread_mode);
              return result;
            };
            CUgraph graph = nullptr;
            ASSERT_EQ(begin_capture(stream, mode), 0);
            const int result = own ? call() : in_thread(call);
            const int ended = end_capture(stream, &graph);
            const bool seen = own ? mode != CU_STREAM_CAPTURE_MODE_RELAXED
                                  : mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
            const bool ends = beside.unsafe && seen && !relaxed;
            EXPECT_EQ(ended, ends ? 901 : 0) << beside.name << mode << own << relaxed;
            EXPECT_EQ(result, ends ? 900 : 0) << beside.name << mode << own << relaxed;
          }
        }
      }
    }
  });
}

TEST(SimCapture, NamedCallsAreUnsafeToo) {
  TestNode node;
  in_child([&] {
    setenv("FRACGPU_SIM_UNSAFE", "cuCtxGetLimit,cuCtxGetFlags", 1);
    ASSERT_EQ(cu_start(), 0);
    const CUstream stream = stream_create();
    size_t limit = 0;
    unsigned flags = 0;
    CUgraph graph = nullptr;
    const auto ask = [&] { return cuda<int(size_t*, int)>("cuCtxGetLimit")(&limit, 0); };
    const auto ask_flags = [&] { return cuda<int(unsigned*)>("cuCtxGetFlags")(&flags); };
    EXPECT_EQ(ask(), 0);
    ASSERT_EQ(begin_capture(stream), 0);
    EXPECT_EQ(in_thread(ask), 900);
    EXPECT_EQ(end_capture(stream, &graph), 901);
    ASSERT_EQ(begin_capture(stream), 0);
    EXPECT_EQ(ask_flags(), 900);
    EXPECT_EQ(end_capture(stream, &graph), 901);
    ASSERT_EQ(begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
    EXPECT_EQ(ask(), 0);
    EXPECT_EQ(end_capture(stream, &graph), 0);
  });
}

// With FRACGPU_SIM_KERNEL_MS a kernel keeps its stream, and what waits for that, busy for so long.
TEST(SimKernelTime, KeepsAStreamBusy) {
  TestNode node;
  in_child([&] {
    setenv("FRACGPU_SIM_KERNEL_MS", "200", 1);
    ASSERT_EQ(cu_start(), 0);
    const CUstream stream = stream_create(), follower = stream_create(), other = stream_create();
    const CUevent event = event_create();
    auto* const query = cuda<int(CUstream)>("cuStreamQuery");
    const auto launch_kernel = [](CUstream on) {
      int word = 0;
      return cuda<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      CUstream, void*, void*)>("cuLaunchKernel")(&word, 1, 1, 1, 1, 1, 1, 0, on,
                                                                 nullptr, nullptr);
    };
    EXPECT_EQ(query(stream), 0);
    const auto before = std::chrono::steady_clock::now();
    ASSERT_EQ(launch_kernel(stream), 0);
    ASSERT_EQ(event_record(event, stream), 0);
    ASSERT_EQ((cuda<int(CUstream, CUevent, unsigned)>("cuStreamWaitEvent")(follower, event, 0)), 0);
    EXPECT_EQ(query(other), 0) << "nothing was told to it";
    EXPECT_EQ(query(stream), 600);
    EXPECT_EQ(query(follower), 600);
    EXPECT_EQ(cuda<int(CUevent)>("cuEventQuery")(event), 600);
    ASSERT_EQ(stream_sync(follower), 0);
    EXPECT_GE(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(200));
    EXPECT_EQ(query(stream), 0);
    EXPECT_EQ(cuda<int(CUevent)>("cuEventQuery")(event), 0);
  });
}

// Memory that waits for a kernel is nobody's: a pool neither gives it back nor hands it to a stream
// that does not come after it.
TEST(SimKernelTime, KeepsWhatWasFreedAfterIt) {
  TestNode node;
  in_child([&] {
    setenv("FRACGPU_SIM_KERNEL_MS", "200", 1);
    ASSERT_EQ(cu_start(), 0);
    const CUstream stream = stream_create(), other = stream_create();
    CUmemoryPool pool = nullptr;
    Pointer first = 0, again = 0, second = 0;
    int word = 0;
    ASSERT_EQ(pool_create(&pool), 0);
    ASSERT_EQ(pool_alloc(&first, 32 * kMiB, pool, stream), 0);
    ASSERT_EQ((cuda<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        CUstream, void*, void*)>("cuLaunchKernel")(&word, 1, 1, 1, 1, 1, 1, 0,
                                                                   stream, nullptr, nullptr)),
              0);
    ASSERT_EQ(free_async(first, stream), 0);
    ASSERT_EQ(pool_trim(pool, 0), 0);
    EXPECT_EQ(reserved(pool), 32u);
    ASSERT_EQ(pool_alloc(&second, 32 * kMiB, pool, other), 0);
    EXPECT_EQ(reserved(pool), 64u);
    ASSERT_EQ(pool_alloc(&again, 32 * kMiB, pool, stream), 0);  // it comes after its own free
    EXPECT_EQ(again, first);
    ASSERT_EQ(free_async(again, stream), 0);
    ASSERT_EQ(pool_destroy(pool), 0);
    EXPECT_EQ(mib(node), kContext + 64) << "a pool that ended lost what was not free yet";
    ASSERT_EQ(free_async(second, other), 0);
    ASSERT_EQ(context_sync(), 0);
    EXPECT_EQ(mib(node), kContext);
  });
}

TEST(SimCapture, OtherStreamsJoin) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUstream one = stream_create(), two = stream_create();
    const CUevent fork = event_create(), join = event_create();
    auto* wait = cuda<int(CUstream, CUevent, unsigned)>("cuStreamWaitEvent");
    CUgraph graph = nullptr;
    Pointer a = 0, b = 0;
    ASSERT_EQ(begin_capture(one), 0);
    ASSERT_EQ(alloc_async(&a, kMiB, one), 0);
    ASSERT_EQ(event_record(fork, one), 0);
    ASSERT_EQ(wait(two, fork, 0), 0);
    EXPECT_EQ(capturing(two), 1);
    ASSERT_EQ(alloc_async(&b, kMiB, two), 0);
    ASSERT_EQ(free_async(a, two), 0);
    EXPECT_EQ(mib(node), kContext);
    EXPECT_EQ(end_capture(two, &graph), 903);
    ASSERT_EQ(event_record(join, two), 0);
    ASSERT_EQ(wait(one, join, 0), 0);
    ASSERT_EQ(end_capture(one, &graph), 0);
    EXPECT_EQ(capturing(two), 0);
    size_t count = 0;
    ASSERT_EQ(nodes_of(graph, nullptr, &count), 0);
    EXPECT_EQ(count, 3u);
    // Without the second event, work of the second stream is left over.
    ASSERT_EQ(begin_capture(one), 0);
    ASSERT_EQ(event_record(fork, one), 0);
    ASSERT_EQ(wait(two, fork, 0), 0);
    ASSERT_EQ(alloc_async(&b, kMiB, two), 0);
    EXPECT_EQ(end_capture(one, &graph), 904);
    EXPECT_EQ(capturing(two), 0);
    // Two captures cannot meet, nor can one wait for work outside.
    ASSERT_EQ(begin_capture(one), 0);
    ASSERT_EQ(begin_capture(two), 0);
    ASSERT_EQ(event_record(fork, one), 0);
    EXPECT_EQ(wait(two, fork, 0), 902);
    EXPECT_EQ(end_capture(one, &graph), 901);
    EXPECT_EQ(end_capture(two, &graph), 901);
    ASSERT_EQ(event_record(join, two), 0);
    ASSERT_EQ(begin_capture(one), 0);
    EXPECT_EQ(wait(one, join, 0), 905);
    EXPECT_EQ(end_capture(one, &graph), 901);
  });
}

TEST(SimCapture, EndsWithTheContext) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUstream stream = stream_create();
    Pointer a = 0;
    ASSERT_EQ(begin_capture(stream), 0);
    ASSERT_EQ(alloc_async(&a, kMiB, stream), 0);
    ASSERT_EQ(cuda<int(int)>("cuDevicePrimaryCtxReset_v2")(0), 0);
    ASSERT_EQ(cu_start(), 0);
    EXPECT_EQ(cu_alloc(&a, 512), 0);
    CUgraph graph = nullptr;
    EXPECT_EQ(end_capture(stream, &graph), 400);
  });
}

}  // namespace
