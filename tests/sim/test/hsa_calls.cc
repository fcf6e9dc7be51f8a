// The calls that most tests of the simulated HSA runtime make.
#include "sim/test/hsa_calls.h"

#include <dlfcn.h>

namespace simtest {

void* hsa_symbol(const char* name) {
  void* library = dlopen(SIM_HSA, RTLD_NOW);
  if (library == nullptr) ADD_FAILURE() << dlerror();
  void* found = library != nullptr ? dlsym(library, name) : nullptr;
  if (found == nullptr) ADD_FAILURE() << name;
  return found;
}

Machine hsa_start() {
  EXPECT_EQ(hsa<int()>("hsa_init")(), 0);
  std::vector<hsa_agent_t> agents;
  hsa<int(int (*)(hsa_agent_t, void*), void*)>("hsa_iterate_agents")(
      [](hsa_agent_t agent, void* list) {
        static_cast<std::vector<hsa_agent_t>*>(list)->push_back(agent);
        return 0;
      },
      &agents);
  Machine machine;
  for (const hsa_agent_t agent : agents) {
    std::vector<hsa_amd_memory_pool_t> pools;
    hsa<int(hsa_agent_t, int (*)(hsa_amd_memory_pool_t, void*), void*)>(
        "hsa_amd_agent_iterate_memory_pools")(
        agent,
        [](hsa_amd_memory_pool_t pool, void* list) {
          static_cast<std::vector<hsa_amd_memory_pool_t>*>(list)->push_back(pool);
          return 0;
        },
        &pools);
    if (agent_info<uint32_t>(agent, HSA_AGENT_INFO_DEVICE) == HSA_DEVICE_TYPE_CPU) {
      machine.processor = agent;
      machine.host = pools.at(0);
    } else {
      machine.gpu.push_back({agent, pools.at(0), pools.at(1), pools.at(2)});
    }
  }
  return machine;
}

int hsa_stop() {
  return hsa<int()>("hsa_shut_down")();
}

int pool_take(hsa_amd_memory_pool_t pool, size_t bytes, void** out, uint32_t flags) {
  static auto* const call =
      hsa<int(hsa_amd_memory_pool_t, size_t, uint32_t, void**)>("hsa_amd_memory_pool_allocate");
  return call(pool, bytes, flags, out);
}

int pool_free(void* address) {
  static auto* const call = hsa<int(void*)>("hsa_amd_memory_pool_free");
  return call(address);
}

std::string agent_text(hsa_agent_t agent, uint32_t attribute) {
  char text[64] = {};
  EXPECT_EQ(hsa<int(hsa_agent_t, uint32_t, void*)>("hsa_agent_get_info")(agent, attribute, text),
            0);
  return text;
}

hsa_signal_t signal_make(int64_t value) {
  hsa_signal_t signal{};
  EXPECT_EQ(hsa<int(int64_t, uint32_t, const void*, hsa_signal_t*)>("hsa_signal_create")(
                value, 0, nullptr, &signal),
            0);
  return signal;
}

int64_t signal_load(hsa_signal_t signal) {
  return hsa<int64_t(hsa_signal_t)>("hsa_signal_load_scacquire")(signal);
}

void signal_store(hsa_signal_t signal, int64_t value) {
  hsa<void(hsa_signal_t, int64_t)>("hsa_signal_store_screlease")(signal, value);
}

bool signal_reaches(hsa_signal_t signal, int64_t value) {
  return hsa<int64_t(hsa_signal_t, int, int64_t, uint64_t, int)>("hsa_signal_wait_scacquire")(
             signal, HSA_SIGNAL_CONDITION_EQ, value, 60000000000ULL, 0) == value;
}

}  // namespace simtest
