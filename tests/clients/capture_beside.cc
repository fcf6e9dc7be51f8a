// Captures a stream in one thread while another one makes calls that do no harm to a capture, and
// again with calls that end it. What the captures come to is printed, a line for each:
//
//   CALL MODE OWN THREAD call=RC end=RC
//
// At last, each other way to begin a capture and end it, beside a call that makes a pool grow.
// The calls are made by another thread, and by the capturing one ("own"). MODE is the capture's:
// 0 global, 1 of the thread, 2 relaxed. The lines must not depend on what else is in the process.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "memory_graph.h"
#include "random/actor.h"

namespace client {
namespace {

constexpr size_t kMiB = size_t{1} << 20, kPage = 2 * kMiB;
constexpr int kReserved = 5;  // CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT

struct Beside {
  std::string name;
  std::function<int()> call;
};
using All = std::vector<Beside>;

// A pair: what is made by the first call of a line is gone by the second one. `dropped` is called
// only when `make` has succeeded, in the same capture.
template <typename Make, typename Drop>
void add_pair(All& all, const std::string& name, Make make, Drop drop) {
  all.push_back({name, make});
  all.push_back({name + "-and-gone", [=] {
                   const int made = make();
                   return made == 0 ? drop() : made;
                 }});
}

CUdeviceptr address = 0, linear = 0, mapped = 0;

void add_ordered(All& all, CUstream other) {
  static CUdeviceptr held[16] = {};
  static size_t next = 0;
  static CUmemoryPool pool = nullptr, made = nullptr;
  static uint64_t value = 0;
  static size_t free = 0, total = 0;
  for (CUdeviceptr& each : held) call("cuMemAllocAsync", &each, 2 * kMiB, other);
  call("cuDeviceGetDefaultMemPool", &pool, 0);
  CUgraphExec exec = nullptr;
  make_memory_graph(&exec, 16 * kMiB);
  void* const out = &value;
  const auto asked = [=](size_t bytes) { return call("cuMemAllocAsync", &address, bytes, other); };
  const All calls = {
      {"pool-allocation", [=] { return asked(kMiB); }},
      {"pool-growth", [=] { return asked(300 * kMiB); }},
      {"pool-refusal", [=] { return asked(700 * kMiB); }},
      {"pool-allocation-named",
       [=] { return call("cuMemAllocFromPoolAsync", &address, kMiB, pool, other); }},
      {"pool-free", [=] { return call("cuMemFreeAsync", held[next++ % 16], other); }},
      {"graph-upload", [=] { return call("cuGraphUpload", exec, other); }},
      {"graph-launch", [=] { return call("cuGraphLaunch", exec, other); }},
      {"graph-made",
       [] {
         CUgraphExec made = nullptr;
         return make_memory_graph(&made, kMiB);
       }},
      {"current-pool", [] { return call("cuDeviceSetMemPool", 0, pool); }},
      {"total", [] { return call("cuDeviceTotalMem_v2", &total, 0); }},
      // These are unsafe themselves.
      {"info", [] { return call("cuMemGetInfo_v2", &free, &total); }},
      {"linear", [] { return call("cuMemAlloc_v2", &address, kMiB); }},
      {"linear-free",
       [] {
         const int result = call("cuMemFree_v2", linear);
         if (result == 0) call("cuMemAlloc_v2", &linear, 4 * kMiB);
         return result;
       }},
      {"trim", [] { return call("cuMemPoolTrimTo", pool, size_t{0}); }},
      {"graph-trim", [] { return call("cuDeviceGraphMemTrim", 0); }},
      {"attribute", [=] { return call("cuMemPoolGetAttribute", pool, kReserved, out); }},
  };
  all.insert(all.end(), calls.begin(), calls.end());
  add_pair(
      all, "pool-made",
      [] {
        CUmemPoolProps properties = {};
        properties.allocType = 1;
        properties.location = {.type = kLocationDevice, .id = 0};
        const CUmemPoolProps* const wanted = &properties;
        return call("cuMemPoolCreate", &made, wanted);
      },
      [] { return call("cuMemPoolDestroy", made); });
}

template <typename Descriptor>
Descriptor form_of(size_t width, size_t height) {
  Descriptor form = {};
  form.Format = 0x01;  // UNSIGNED_INT8
  form.NumChannels = 1;
  form.Width = width;
  form.Height = height;
  return form;
}

// Of another form each time: nothing is known of it yet.
void add_arrays(All& all) {
  static CUarray array = nullptr;
  static CUmipmappedArray mipmap = nullptr;
  static size_t width = 1024;
  const auto destroy = [] { return call("cuArrayDestroy", array); };
  add_pair(
      all, "array",
      [] {
        const auto form = form_of<CUDA_ARRAY_DESCRIPTOR>(++width, 4096);
        return call("cuArrayCreate_v2", &array, &form);
      },
      destroy);
  add_pair(
      all, "array-3d",
      [] {
        const auto form = form_of<CUDA_ARRAY3D_DESCRIPTOR>(++width, 4096);
        return call("cuArray3DCreate_v2", &array, &form);
      },
      destroy);
  add_pair(
      all, "array-small",
      [] {
        const auto form = form_of<CUDA_ARRAY_DESCRIPTOR>(++width, 0);
        return call("cuArrayCreate_v2", &array, &form);
      },
      destroy);
  add_pair(
      all, "mipmap",
      [] {
        const auto form = form_of<CUDA_ARRAY3D_DESCRIPTOR>(++width, 1024);
        return call("cuMipmappedArrayCreate", &mipmap, &form, 4u);
      },
      [] { return call("cuMipmappedArrayDestroy", mipmap); });
}

void add_vmm(All& all) {
  static CUmemGenericAllocationHandle kept = 0, handle = 0, team = 0;
  static int descriptor = -1;
  const auto create = [](CUmemGenericAllocationHandle* out) {
    CUmemAllocationProp properties = {};
    properties.type = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
    properties.requestedHandleTypes = kPosixDescriptor;
    properties.location = {.type = kLocationDevice, .id = 0};
    const CUmemAllocationProp* const wanted = &properties;
    return call("cuMemCreate", out, kPage, wanted, 0ull);
  };
  create(&kept);
  call("cuMemAddressReserve", &mapped, kPage, size_t{0}, CUdeviceptr{0}, 0ull);
  const auto release = [] { return call("cuMemRelease", handle); };
  add_pair(
      all, "handle", [=] { return create(&handle); }, release);
  all.push_back({"mapped", [] {
                   const int result = call("cuMemMap", mapped, kPage, size_t{0}, kept, 0ull);
                   return result == 0 ? call("cuMemUnmap", mapped, kPage) : result;
                 }});
  all.push_back({"exported", [] {
                   return call("cuMemExportToShareableHandle", static_cast<void*>(&descriptor),
                               kept, kPosixDescriptor, 0ull);
                 }});
  call("cuMemExportToShareableHandle", static_cast<void*>(&descriptor), kept, kPosixDescriptor,
       0ull);
  add_pair(
      all, "imported",
      [] {
        void* const from = reinterpret_cast<void*>(static_cast<intptr_t>(descriptor));
        return call("cuMemImportFromShareableHandle", &handle, from, kPosixDescriptor);
      },
      release);
  struct {
    unsigned devices = 1;
    size_t bytes = kPage;
    unsigned long long handle_types = 0, flags = 0;
  } const form;  // CUmulticastObjectProp
  call("cuMulticastCreate", &team, static_cast<const void*>(&form));
  call("cuMulticastAddDevice", team, 0);
  all.push_back({"bound", [] {
                   const int result =
                       call("cuMulticastBindMem", team, size_t{0}, kept, size_t{0}, kPage, 0ull);
                   return result == 0 ? call("cuMulticastUnbind", team, 0, size_t{0}, kPage)
                                      : result;
                 }});
}

void add_ipc(All& all, const CUipcMemHandle& theirs) {
  all.push_back({"ipc-exported", [] {
                   CUipcMemHandle handle = {};
                   return call("cuIpcGetMemHandle", &handle, linear);
                 }});
  static CUdeviceptr opened = 0;
  add_pair(
      all, "ipc-opened", [=] { return call("cuIpcOpenMemHandle_v2", &opened, theirs, 1u); },
      [] { return call("cuIpcCloseMemHandle", opened); });
}

void add_code(All& all) {
  static CUmodule module = nullptr;
  static CUlibrary library = nullptr;
  const auto load = [](const char* image) {
    return call("cuModuleLoadData", &module, static_cast<const void*>(image));
  };
  add_pair(
      all, "module", [=] { return load("1 MiB"); }, [] { return call("cuModuleUnload", module); });
  all.push_back({"module-refusal", [=] { return load("700 MiB"); }});
  const auto load_library = [] {
    void* const none = nullptr;
    return call("cuLibraryLoadData", &library, static_cast<const void*>("any"), none, none, 0u,
                none, none, 0u);
  };
  add_pair(
      all, "library",
      [=] {
        const int result = load_library();
        return result == 0 ? call("cuLibraryGetModule", &module, library) : result;
      },
      [] { return call("cuLibraryUnload", library); });
}

void add_contexts(All& all, CUcontext primary) {
  static CUcontext context = nullptr;
  const auto back = [=](int result) {
    call("cuCtxSetCurrent", primary);
    return result;
  };
  all.push_back({"context", [=] {
                   const int made = call("cuCtxCreate_v2", &context, 0u, 0);
                   return back(made == 0 ? call("cuCtxDestroy_v2", context) : made);
                 }});
  all.push_back({"context-current", [=] { return back(0); }});
  add_pair(
      all, "primary-retained", [] { return call("cuDevicePrimaryCtxRetain", &context, 0); },
      [] { return call("cuDevicePrimaryCtxRelease_v2", 0); });
  // One more is held from the start, and one for each line of this.
  for (int i = 0; i < 6; ++i) call("cuDevicePrimaryCtxRetain", &context, 0);
  all.push_back({"primary-released", [] { return call("cuDevicePrimaryCtxRelease_v2", 0); }});
  for (const auto& [name, which, low, high] :
       {std::tuple{"stack", kLimitStack, size_t{1024}, size_t{2048}},
        std::tuple{"printf", kLimitPrintf, 2 * kMiB, 8 * kMiB},
        std::tuple{"heap", kLimitHeap, 16 * kMiB, 24 * kMiB}}) {
    add_pair(
        all, std::string("limit-") + name,
        [which = which, high = high] { return call("cuCtxSetLimit", which, high); },
        [which = which, low = low] { return call("cuCtxSetLimit", which, low); });
  }
  static CUgreenCtx green = nullptr;
  static void* description = nullptr;
  alignas(8) static char resource[144];  // CUdevResource
  call("cuDeviceGetDevResource", 0, static_cast<void*>(resource), 1);
  call("cuDevResourceGenerateDesc", &description, static_cast<void*>(resource), 1u);
  add_pair(
      all, "green", [] { return call("cuGreenCtxCreate", &green, description, 0, 1u); },
      [] { return call("cuGreenCtxDestroy", green); });
}

// A child that exports memory, and ends when `end` is closed. Before the driver is initialised.
CUipcMemHandle exported_by_child(int& end) {
  CUipcMemHandle handle = {};
  int told[2], held[2];
  if (pipe(told) != 0 || pipe(held) != 0) return handle;
  end = held[1];
  if (fork() == 0) {
    close(held[1]);
    World world;
    CUdeviceptr memory = 0;
    char none = 0;
    if (api.begin(world) && call("cuMemAlloc_v2", &memory, kPage) == 0)
      call("cuIpcGetMemHandle", &handle, memory);
    const bool done = write(told[1], &handle, sizeof handle) == sizeof handle;
    _exit(done && read(held[0], &none, 1) == 0 ? 0 : 1);
  }
  close(told[1]);
  close(held[0]);
  if (read(told[0], &handle, sizeof handle) != sizeof handle) handle = {};
  close(told[0]);
  return handle;
}

// `begin()` begins a capture and `end()` ends it.
template <typename Begin, typename End>
void capture_otherwise(const char* name, Begin begin, End end) {
  const int begun = begin();
  const int grown = call("cuMemAllocAsync", &address, 300 * kMiB, CUstream{nullptr});
  std::printf("%s begin=%d call=%d end=%d\n", name, begun, grown, end());
}

int run() {
  int end = -1;
  const CUipcMemHandle theirs = exported_by_child(end);
  World world;
  if (!api.begin(world)) return 3;
  CUstream captured = nullptr, other = nullptr;
  call("cuStreamCreate", &captured, 1u);
  call("cuStreamCreate", &other, 1u);
  call("cuMemAlloc_v2", &linear, 4 * kMiB);
  All all;
  add_ordered(all, other);
  add_arrays(all);
  add_vmm(all);
  add_ipc(all, theirs);
  add_code(all);
  add_contexts(all, static_cast<CUcontext>(world.context));
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
        std::printf("%s mode=%d own=%d begin=%d call=%d end=%d\n", beside.name.c_str(), mode, own,
                    begun, result, ended);
      }
    }
  }
  CUgraph graph = nullptr, made = nullptr;
  void* const none = nullptr;
  call("cuGraphCreate", &graph, 0u);
  capture_otherwise(
      "recapture",
      [&] { return call("cuStreamBeginRecaptureToGraph", captured, 0, graph, none, none); },
      [&] { return call("cuStreamEndCapture", captured, &made); });
  capture_otherwise(
      "graphics", [&] { return call("cuStreamBeginCaptureToCig", captured, none); },
      [&] { return call("cuStreamEndCaptureToCig", captured); });
  close(end);
  int status = 0;
  wait(&status);
  return status;
}

}  // namespace
}  // namespace client

int main() {
  return client::run();
}
