// repeat_client COMMAND [ARGUMENT] …: makes calls many times over, as programs do that are under
// way.
//
// The first device's primary context is made at first. A command prints one line, "COMMAND rc=N",
// with the first result that was not 0. "wait" prints "ready" and reads a line from stdin.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "code_image.h"
#include "memory_graph.h"
#include "random/actor.h"

namespace {

using client::call;
using namespace fracgpu::cuda;

std::vector<CUmodule> modules;
std::vector<CUarray> arrays;
CUlibrary library = nullptr;

uint64_t number(const std::string& text) {
  return std::strtoull(text.c_str(), nullptr, 10);
}

int repeat(uint64_t times, const std::function<int()>& step) {
  int first_bad = 0;
  for (uint64_t i = 0; i < times && first_bad == 0; ++i) first_bad = step();
  return first_bad;
}

int load(const std::string& image) {
  CUmodule module = nullptr;
  const void* const text = image.c_str();
  const int rc = call("cuModuleLoadData", &module, text);
  if (rc == 0) modules.push_back(module);
  return rc;
}

// The images stay, as those that are linked into a program do.
int load_image(std::string image) {
  static std::list<std::string> kept;
  kept.push_back(std::move(image));
  CUmodule module = nullptr;
  const int rc = call("cuModuleLoadData", &module, static_cast<const void*>(kept.back().data()));
  if (rc == 0) modules.push_back(module);
  return rc;
}

// The same as a library, whose code is loaded when its module is asked for.
int use_library_of(const std::string& image) {
  CUlibrary made = nullptr;
  CUmodule module = nullptr;
  void* const none = nullptr;
  const int rc = call("cuLibraryLoadData", &made, static_cast<const void*>(image.data()), none,
                      none, 0u, none, none, 0u);
  return rc == 0 ? call("cuLibraryGetModule", &module, made) : rc;
}

int unload() {
  const int rc = modules.empty() ? 1 : call("cuModuleUnload", modules.back());
  if (rc == 0) modules.pop_back();
  return rc;
}

// Of one row of bytes, so that small ones share a chunk; or a square of another format.
int make_array(uint64_t width, int format = 0x01) {
  CUDA_ARRAY3D_DESCRIPTOR form = {};
  form.Format = format;
  form.NumChannels = 1;
  form.Width = width;
  form.Height = format != 0x01 ? width : 0;
  const CUDA_ARRAY3D_DESCRIPTOR* const wanted = &form;
  CUarray array = nullptr;
  const int rc = call("cuArray3DCreate_v2", &array, wanted);
  if (rc == 0) arrays.push_back(array);
  return rc;
}

int destroy_array() {
  const int rc = arrays.empty() ? 1 : call("cuArrayDestroy", arrays.back());
  if (rc == 0) arrays.pop_back();
  return rc;
}

int allocate(uint64_t bytes) {
  CUdeviceptr address = 0;
  return call("cuMemAlloc_v2", &address, size_t{bytes});
}

struct Green {
  CUgreenCtx handle;
  CUcontext before;  // that was current
};
std::vector<Green> greens;

// A green context of the device, which is current from then on.
int make_green(int device) {
  Green green = {};
  CUcontext context = nullptr;
  void* description = nullptr;
  alignas(8) char resource[144] = {};  // CUdevResource
  call("cuCtxGetCurrent", &green.before);
  int rc = call("cuDeviceGetDevResource", device, static_cast<void*>(resource), 1);
  rc |= call("cuDevResourceGenerateDesc", &description, static_cast<void*>(resource), 1u);
  if (rc == 0) rc = call("cuGreenCtxCreate", &green.handle, description, device, 1u);
  if (rc != 0) return rc;
  greens.push_back(green);
  return call("cuCtxFromGreenCtx", &context, green.handle) | call("cuCtxSetCurrent", context);
}

int end_green() {
  const Green green = greens.back();
  greens.pop_back();
  return call("cuCtxSetCurrent", green.before) | call("cuGreenCtxDestroy", green.handle);
}

// Allocates 10 MiB in a green context of the first device, ends that, and makes an ordinary one
// with 20 MiB on another device.
int make_context_after_green(int device) {
  CUcontext context = nullptr;
  int rc = make_green(0);
  if (rc == 0) rc = allocate(10u << 20) | end_green();
  if (rc == 0) rc = call("cuCtxCreate_v2", &context, 0u, device);
  return rc == 0 ? allocate(20u << 20) : rc;
}

// The graph that ran last did so in a stream that ended with its context. What launching another
// one that needs so many bytes comes to.
int launch_after_stream_of_dead_context(uint64_t bytes) {
  CUcontext before = nullptr, context = nullptr;
  CUgraphExec exec = nullptr;
  CUstream own = nullptr, stream = nullptr;
  call("cuCtxGetCurrent", &before);
  int rc = call("cuStreamCreate", &own, 1u) | call("cuCtxCreate_v2", &context, 0u, 0);
  rc |= call("cuStreamCreate", &stream, 1u) | client::make_memory_graph(&exec, 64u << 20);
  rc |= call("cuGraphLaunch", exec, stream) | call("cuGraphExecDestroy", exec);
  rc |= call("cuCtxDestroy_v2", context) | call("cuCtxSetCurrent", before);
  rc |= client::make_memory_graph(&exec, bytes);
  return rc != 0 ? rc : call("cuGraphLaunch", exec, own);
}

int find_global() {
  int rc = 0;
  if (library == nullptr) {
    const void* const code = "any";
    void* const none = nullptr;
    rc = call("cuLibraryLoadData", &library, code, none, none, 0u, none, none, 0u);
  }
  CUdeviceptr address = 0;
  size_t bytes = 0;
  const char* const name = "global";
  CUmodule module = nullptr;
  if (rc == 0) rc = call("cuLibraryGetGlobal", &address, &bytes, library, name);
  return rc == 0 ? call("cuLibraryGetModule", &module, library) : rc;
}

void* got = nullptr;

int get_function(const std::string& name) {
  CUmodule module = modules.empty() ? nullptr : modules.back();
  return call("cuModuleGetFunction", &got, module, name.c_str());
}

int get_kernel(const std::string& name) {
  CUlibrary made = nullptr;
  void *kernel = nullptr, *const none = nullptr;
  const char* const code = "any";
  int rc = call("cuLibraryLoadData", &made, code, none, none, 0u, none, none, 0u);
  if (rc == 0) rc = call("cuLibraryGetKernel", &kernel, made, name.c_str());
  return rc == 0 ? call("cuKernelGetFunction", &got, kernel) : rc;
}

int launch_got() {
  void* none = nullptr;
  return call("cuLaunchKernel", got, 1u, 1u, 1u, 1u, 1u, 1u, 0u, none, none, none);
}

int launch() {
  const int rc = get_function("kernel");
  return rc == 0 ? launch_got() : rc;
}

// A pool of its own, used by a kernel on a stream of its own and left at once.
int use_pool(uint64_t bytes) {
  static void* function = nullptr;
  static CUstream stream = nullptr;
  CUmodule module = nullptr;
  CUmemoryPool pool = nullptr;
  CUdeviceptr address = 0;
  void* const none = nullptr;
  CUmemPoolProps properties = {};
  properties.allocType = 1;
  properties.location = {.type = kLocationDevice, .id = 0};
  const CUmemPoolProps* const wanted = &properties;
  int rc = 0;
  if (stream == nullptr) {
    rc = call("cuStreamCreate", &stream, 1u) | load("any");
    module = modules.empty() ? nullptr : modules.back();
    rc |= call("cuModuleGetFunction", &function, module, static_cast<const char*>("kernel"));
  }
  if (rc == 0) rc = call("cuMemPoolCreate", &pool, wanted);
  if (rc == 0) rc = call("cuMemAllocFromPoolAsync", &address, size_t{bytes}, pool, stream);
  if (rc == 0)
    rc = call("cuLaunchKernel", function, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, none, none);
  if (rc == 0) rc = call("cuMemFreeAsync", address, stream);
  if (pool != nullptr) rc |= call("cuMemPoolDestroy", pool);
  return rc;
}

// Calls for memory in a context that another thread has ended. Prints one line for each.
int use_dead_context() {
  CUcontext context = nullptr;
  const int rc = call("cuCtxCreate_v2", &context, 0u, 0);
  if (rc != 0) return rc;
  std::thread([&] { call("cuCtxDestroy_v2", context); }).join();
  CUdeviceptr address = 0;
  size_t pitch = 0, free = 0, total = 0;
  CUmodule module = nullptr;
  void* const none = nullptr;
  const std::pair<const char*, int> answers[] = {
      {"cuMemAlloc", call("cuMemAlloc_v2", &address, size_t{4096})},
      {"cuMemAllocManaged", call("cuMemAllocManaged", &address, size_t{4096}, 1u)},
      {"cuMemAllocPitch", call("cuMemAllocPitch_v2", &address, &pitch, size_t{64}, size_t{64}, 4u)},
      {"cuMemAllocAsync", call("cuMemAllocAsync", &address, size_t{4096}, none)},
      {"cuModuleLoadData", call("cuModuleLoadData", &module, static_cast<const void*>("any"))},
      {"cuArray3DCreate", make_array(4096)},
      {"cuCtxSetLimit", call("cuCtxSetLimit", kLimitHeap, size_t{64} << 20)},
      {"cuMemGetInfo", call("cuMemGetInfo_v2", &free, &total)},
  };
  for (const auto& [name, answer] : answers) std::printf("%s rc=%d\n", name, answer);
  return 0;
}

int look() {
  size_t free = 0, total = 0;
  return call("cuMemGetInfo_v2", &free, &total);
}

int allocate_and_free(size_t bytes) {
  CUdeviceptr address = 0;
  const int rc = call("cuMemAlloc_v2", &address, bytes);
  return rc == 0 ? call("cuMemFree_v2", address) : rc;
}

// Frees any of 100,000 allocations of a page and makes another one, as long-lived programs do.
int replace() {
  static std::vector<CUdeviceptr> live;
  static uint64_t random = 0x9e3779b97f4a7c15;
  constexpr size_t kBytes = 2u << 20;
  int rc = 0;
  for (CUdeviceptr address = 0; live.size() < 100'000 && rc == 0; live.push_back(address)) {
    rc = call("cuMemAlloc_v2", &address, kBytes);
  }
  random ^= random << 13;
  random ^= random >> 7;
  random ^= random << 17;
  CUdeviceptr& any = live[random % live.size()];
  if (rc == 0) rc = call("cuMemFree_v2", any);
  return rc == 0 ? call("cuMemAlloc_v2", &any, kBytes) : rc;
}

int allocate_and_free_async() {
  static CUstream stream = nullptr;
  CUdeviceptr address = 0;
  int rc = stream == nullptr ? call("cuStreamCreate", &stream, 1u) : 0;
  if (rc == 0) rc = call("cuMemAllocAsync", &address, size_t{2u << 20}, stream);
  return rc == 0 ? call("cuMemFreeAsync", address, stream) : rc;
}

// Two small allocations in one chunk. The first is freed in stream order, and nobody waits for it;
// then the driver's report is read, and the second is freed.
int leave_lingering() {
  CUdeviceptr first = 0, second = 0, none = 0;
  const CUstream of_all = nullptr;
  int rc = call("cuMemAlloc_v2", &first, size_t{4096});
  if (rc == 0) rc = call("cuMemFreeAsync", first, of_all);
  if (rc == 0) rc = call("cuMemAlloc_v2", &second, size_t{4096});
  call("cuMemAlloc_v2", &none, size_t{1} << 50);
  return rc == 0 ? call("cuMemFree_v2", second) : rc;
}

int run(const std::string& name, const std::string& argument) {
  if (name == "modules") return repeat(number(argument), [] { return load("any") | unload(); });
  if (name == "load") return load(argument);
  if (name == "cubin") return load_image(client::cubin(number(argument) << 10));
  if (name == "fatbin") {
    const std::string image = client::cubin(number(argument) << 10);
    return load_image(client::fatbin(image, image));
  }
  if (name == "library") return use_library_of(client::cubin(number(argument) << 10));
  if (name == "unload") return unload();
  if (name == "dead") return use_dead_context();
  if (name == "afterstream") return launch_after_stream_of_dead_context(number(argument) << 20);
  if (name == "green") return make_green(static_cast<int>(number(argument)));
  if (name == "endgreen") return end_green();
  if (name == "reset")
    return call("cuDevicePrimaryCtxReset_v2", static_cast<int>(number(argument)));
  if (name == "aftergreen") return make_context_after_green(static_cast<int>(number(argument)));
  if (name == "arrays") {
    return repeat(number(argument), [] { return make_array(4096) | destroy_array(); });
  }
  if (name == "makearrays") return repeat(number(argument), [] { return make_array(4096); });
  if (name == "square") {
    // UNSIGNED_INT32, SIGNED_INT32 and FLOAT have four bytes.
    return make_array(number(argument), 0x03) | make_array(number(argument), 0x0a) |
           make_array(number(argument), 0x20);
  }
  if (name == "droparrays") return repeat(number(argument), destroy_array);
  if (name == "globals") return repeat(number(argument), find_global);
  if (name == "looks") return repeat(number(argument), look);
  if (name == "smallpairs")
    return repeat(number(argument), [] { return allocate_and_free(4u << 10); });
  if (name == "wholepairs")
    return repeat(number(argument), [] { return allocate_and_free(2u << 20); });
  if (name == "replace") return repeat(number(argument), replace);
  if (name == "asyncpairs") return repeat(number(argument), allocate_and_free_async);
  if (name == "launch") return launch();
  if (name == "function") return get_function(argument);
  if (name == "kernel") return get_kernel(argument);
  if (name == "go") return launch_got();
  if (name == "stack") return call("cuCtxSetLimit", 0, static_cast<size_t>(number(argument)));
  if (name == "alloc") return allocate(number(argument) << 20);
  if (name == "pools") return repeat(3, [&] { return use_pool(number(argument) << 20); });
  if (name == "lingering") return leave_lingering();
  if (name == "toomuch") return allocate(uint64_t{1} << 50);
  std::fprintf(stderr, "repeat_client: unknown command '%s'\n", name.c_str());
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  client::World world;
  if (!client::api.begin(world)) return 3;
  for (int i = 1; i < argc;) {
    const std::string name = argv[i++];
    if (name == "wait") {
      std::puts("ready");
      std::fflush(stdout);
      std::string line;
      if (!std::getline(std::cin, line)) return 0;
      continue;
    }
    const bool alone = name == "unload" || name == "dead" || name == "launch" || name == "go" ||
                       name == "lingering" || name == "toomuch" || name == "endgreen";
    const std::string argument = alone || i == argc ? "" : argv[i++];
    std::printf("%s rc=%d\n", name.c_str(), run(name, argument));
    std::fflush(stdout);
  }
  return 0;
}
