#include "tests/hardware/hsa.h"

#include <dlfcn.h>

#include <cstdlib>

namespace hardware {

void* hsa_function(const char* name) {
  static void* const library = dlopen("libhsa-runtime64.so.1", RTLD_NOW | RTLD_LOCAL);
  return library != nullptr ? dlsym(library, name) : nullptr;
}

void* hip_function(const char* name) {
  static void* const library = [] {
    const char* given = std::getenv("HIP_LIBRARY");
    if (given != nullptr) return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    void* found = nullptr;
    for (const char* each : {"libamdhip64.so.8", "libamdhip64.so.7", "libamdhip64.so.6",
                             "libamdhip64.so.5", "libamdhip64.so"}) {
      if (found == nullptr) found = dlopen(each, RTLD_NOW | RTLD_LOCAL);
    }
    return found;
  }();
  return library != nullptr ? dlsym(library, name) : nullptr;
}

HsaGpu begin_hsa() {
  hsa("hsa_init");
  static std::vector<hsa_agent_t> agents;
  static std::vector<hsa_amd_memory_pool_t> pools;
  agents.clear();
  pools.clear();
  void* const nothing = nullptr;
  const auto visit = +[](hsa_agent_t agent, void*) {
    int type = -1;
    void* const out = &type;
    if (try_hsa("hsa_agent_get_info", agent, kAgentDevice, out) == 0 && type == kDeviceIsGpu) {
      agents.push_back(agent);
    }
    return 0;
  };
  hsa("hsa_iterate_agents", reinterpret_cast<void*>(visit), nothing);
  if (agents.empty()) throw Unmeasured("HSA has no GPU agent");
  const auto take = +[](hsa_amd_memory_pool_t pool, void*) {
    int segment = -1;
    void* const out = &segment;
    if (try_hsa("hsa_amd_memory_pool_get_info", pool, kPoolSegment, out) == 0 &&
        segment == kPoolIsGlobal) {
      pools.push_back(pool);
    }
    return 0;
  };
  hsa("hsa_amd_agent_iterate_memory_pools", agents[0], reinterpret_cast<void*>(take), nothing);
  if (pools.empty()) throw Unmeasured("the GPU has no memory pool");
  return {agents[0], pools[0]};
}

}  // namespace hardware
