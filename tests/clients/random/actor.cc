// CUDA's driver API for the actors; see actor.h.
#include "actor.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <future>
#include <map>
#include <mutex>
#include <thread>

namespace client {

void* driver_function(const char* name) {
  static std::mutex mutex;
  static std::map<std::string, void*> known;
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  const std::lock_guard lock(mutex);
  void*& function = known[name];
  if (function == nullptr && library != nullptr) function = dlsym(library, name);
  if (function == nullptr) {
    std::fprintf(stderr, "the driver has no %s\n", name);
    std::_Exit(3);
  }
  return function;
}

// RANDOM_CALLS_BESIDE: by a thread that is not the first and lives as long as the process.
static int initialise() {
  if (std::getenv("RANDOM_CALLS_BESIDE") == nullptr) return call("cuInit", 0u);
  std::promise<int> result;
  std::thread([&result] {
    result.set_value(call("cuInit", 0u));
    for (;;) pause();
  }).detach();
  return result.get_future().get();
}

const Api api = {
    .name = "random_calls",
    .begin =
        [](World& world) {
          return initialise() == 0 && call("cuDevicePrimaryCtxRetain", &world.context, 0) == 0 &&
                 call("cuCtxSetCurrent", world.context) == 0;
        },
    .begin_thread = [](const World& world) { call("cuCtxSetCurrent", world.context); },
    .settle = [] { call("cuCtxSynchronize"); },
    .free_bytes =
        [] {
          size_t free = 0, total = 0;
          return call("cuMemGetInfo_v2", &free, &total) == 0 ? uint64_t{free} : 0;
        },
    .out_of_memory = [](int result) { return result == kOutOfMemory; },
    .ask_too_much =
        [] {
          CUdeviceptr address = 0;
          call("cuMemAlloc_v2", &address, size_t{1} << 50);
        },
};

std::unique_ptr<Actor> make_actor(const std::string& family, const World& world, uint64_t seed) {
  if (family == "linear") return make_linear(world, seed);
  if (family == "managed") return make_managed(world, seed);
  if (family == "vmm") return make_vmm(world, seed);
  if (family == "pools") return make_pools(world, seed);
  if (family == "arrays") return make_arrays(world, seed);
  if (family == "graphs") return make_graphs(world, seed);
  if (family == "sharing") return make_sharing(world, seed);
  if (family == "overhead") return make_overhead(world, seed);
  return nullptr;
}

}  // namespace client
