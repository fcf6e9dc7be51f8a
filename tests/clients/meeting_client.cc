// meeting_client WHAT: two threads, of which one makes a call while the other one's is under way in
// the driver. They meet in the simulated driver (FRACGPU_SIM_AWAIT).
//
//   pool      cuMemAllocAsync and cuMemAllocFromPoolAsync make the default pool grow, 32 MiB each;
//   the
//             first thread calls cuCtxGetId when it has what it asked for
//   (others)  one thread ends what the word says, and the other one makes its like, between a
//             cuCtxGetFlags and a cuCtxGetId: the driver gives the handle out again
//
// Prints "ready" when both are done, and reads a line; then drops what the second thread has,
// prints "ready" and reads a line once more. A call that must succeed and does not ends the
// program.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "random/actor.h"

namespace client {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

template <typename... Arguments>
void need(const char* name, Arguments... arguments) {
  const int result = call(name, arguments...);
  if (result == 0) return;
  std::printf("%s rc=%d\n", name, result);
  std::fflush(stdout);
  std::_Exit(1);
}

CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr address = 0;
  need("cuMemAlloc_v2", &address, bytes);
  return address;
}

// What one thread has. `begin` makes it, `end` is the call that the driver holds.
struct Thing {
  std::function<void(bool is_first)> begin;
  std::function<void()> end;
};

CUcontext make_context() {
  CUcontext context = nullptr;
  need("cuCtxCreate_v2", &context, 0u, 0);
  return context;
}

// A context with an allocation: 64 MiB of the first, 100 MiB of the second.
Thing of_context(const char* end) {
  static thread_local CUcontext context = nullptr;
  return {[](bool is_first) {
            context = make_context();
            allocate((is_first ? 64 : 100) * kMiB);
          },
          [end] { need(end, context); }};
}

// The primary one, which is ended by its last release or by a reset.
Thing of_primary(const char* end) {
  return {[](bool is_first) {
            CUcontext context = nullptr;
            need("cuDevicePrimaryCtxRetain", &context, 0);
            need("cuCtxSetCurrent", context);
            allocate((is_first ? 64 : 100) * kMiB);
          },
          [end] { need(end, 0); }};
}

// As many streams as make the driver take pages.
Thing of_streams() {
  static thread_local CUcontext context = nullptr;
  return {[](bool) {
            context = make_context();
            CUstream stream = nullptr;
            for (int i = 0; i < 12; ++i) need("cuStreamCreate", &stream, 1u);
          },
          [] { need("cuCtxDestroy_v2", context); }};
}

Thing of_module() {
  static thread_local CUmodule module = nullptr;
  return {[](bool is_first) {
            const void* const image = is_first ? "64 MiB" : "100 MiB";
            need("cuModuleLoadData", &module, image);
          },
          [] { need("cuModuleUnload", module); }};
}

CUmemGenericAllocationHandle make_physical() {
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp properties = {};
  properties.type = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
  properties.location = {.type = kLocationDevice, .id = 0};
  const CUmemAllocationProp* const wanted = &properties;
  need("cuMemCreate", &handle, 2 * kMiB, wanted, 0ull);
  return handle;
}

Thing of_physical() {
  static thread_local CUmemGenericAllocationHandle handle = 0;
  return {[](bool) { handle = make_physical(); }, [] { need("cuMemRelease", handle); }};
}

// A sparse array with memory that is in use by it alone.
Thing of_sparse_array() {
  static thread_local CUarray array = nullptr;
  return {[](bool) {
            CUDA_ARRAY3D_DESCRIPTOR form = {};
            form.Format = 0x01;  // UNSIGNED_INT8
            form.NumChannels = 1;
            form.Width = form.Height = 256;
            form.Flags = 0x40;  // CUDA_ARRAY3D_SPARSE
            const CUDA_ARRAY3D_DESCRIPTOR* const wanted = &form;
            need("cuArray3DCreate_v2", &array, wanted);
            const CUmemGenericAllocationHandle handle = make_physical();
            CUarrayMapInfo tile = {};
            tile.resource.array = array;
            tile.subresource.sparseLevel.extentWidth = 256;
            tile.subresource.sparseLevel.extentHeight = 256;
            tile.subresource.sparseLevel.extentDepth = 1;
            tile.memOperationType = kOperationMap;
            tile.memHandle.memHandle = handle;
            tile.deviceBitMask = 1;
            need("cuMemMapArrayAsync", &tile, 1u, CUstream{nullptr});
            need("cuMemRelease", handle);
          },
          [] { need("cuArrayDestroy", array); }};
}

void grow_one_pool() {
  const CUcontext context = make_context();
  CUmemoryPool pool = nullptr;
  need("cuDeviceGetDefaultMemPool", &pool, 0);
  const CUstream stream = nullptr;
  std::thread first([&] {
    need("cuCtxSetCurrent", context);
    CUdeviceptr address = 0;
    need("cuMemAllocAsync", &address, 32 * kMiB, stream);
    unsigned long long id = 0;
    call("cuCtxGetId", CUcontext{nullptr}, &id);
  });
  CUdeviceptr address = 0;
  need("cuMemAllocFromPoolAsync", &address, 32 * kMiB, pool, stream);
  first.join();
}

void wait_for_the_test() {
  std::puts("ready");
  std::fflush(stdout);
  while (std::getchar() != '\n') {
  }
}

int run(const std::string& what) {
  const std::map<std::string, Thing> all = {
      {"destroyed", of_context("cuCtxDestroy_v2")},
      {"detached", of_context("cuCtxDetach")},
      {"released", of_primary("cuDevicePrimaryCtxRelease_v2")},
      {"reset", of_primary("cuDevicePrimaryCtxReset_v2")},
      {"streams", of_streams()},
      {"module", of_module()},
      {"physical", of_physical()},
      {"array", of_sparse_array()},
  };
  need("cuInit", 0u);
  if (what == "pool") {
    grow_one_pool();
    wait_for_the_test();
    return 0;
  }
  const auto found = all.find(what);
  if (found == all.end()) return 2;
  const Thing& thing = found->second;
  // A context of the threads' own is current to both, where theirs are not what ends.
  CUcontext own = nullptr;
  if (what == "module" || what == "physical" || what == "array") own = make_context();
  std::thread first([&] {
    if (own != nullptr) need("cuCtxSetCurrent", own);
    thing.begin(true);
    thing.end();
  });
  unsigned flags = 0;
  unsigned long long id = 0;
  call("cuCtxGetFlags", &flags);
  thing.begin(false);
  call("cuCtxGetId", CUcontext{nullptr}, &id);
  first.join();
  wait_for_the_test();
  thing.end();
  wait_for_the_test();
  return 0;
}

}  // namespace
}  // namespace client

int main(int argc, char** argv) {
  return argc == 2 ? client::run(argv[1]) : 2;
}
