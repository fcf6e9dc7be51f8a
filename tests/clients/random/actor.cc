// What the families have in common; see actor.h.
#include "actor.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

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

bool Actor::good(int result, const char* what, uint64_t needed) {
  ++tally_.done;
  if (result == kOutOfMemory) {
    ++tally_.refused;
    size_t free = 0, total = 0;
    if (world_.alone && call("cuMemGetInfo_v2", &free, &total) == 0 && free >= needed &&
        tally_.bad.empty()) {
      tally_.bad = std::string(what) + " refused " + std::to_string(needed) + " with " +
                   std::to_string(free) + " free";
    }
  }
  if (result != kSuccess && result != kOutOfMemory && tally_.bad.empty()) {
    tally_.bad = std::string(what) + "=" + std::to_string(result);
  }
  return result == kSuccess;
}

uint64_t Actor::size() {
  int bits = 0;
  while ((uint64_t{1} << (bits + 1)) <= world_.max_bytes) ++bits;
  const uint64_t top = uint64_t{1} << below(static_cast<uint64_t>(bits) + 1);
  return std::min(world_.max_bytes, top + below(top));
}

std::unique_ptr<Actor> make_actor(const std::string& family, const World& world, uint64_t seed) {
  if (family == "linear") return make_linear(world, seed);
  if (family == "vmm") return make_vmm(world, seed);
  if (family == "pools") return make_pools(world, seed);
  if (family == "arrays") return make_arrays(world, seed);
  if (family == "graphs") return make_graphs(world, seed);
  if (family == "implicit") return make_implicit(world, seed);
  return nullptr;
}

}  // namespace client
