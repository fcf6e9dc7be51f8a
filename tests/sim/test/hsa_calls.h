// What the tests of the simulated HSA runtime share. As with the other libraries, a process that
// has used the runtime keeps its state for life, so everything below runs in children. Statuses are
// plain numbers here, because expectations print them.
#pragma once

#include <vector>

#include "sim/hsa/abi.h"
#include "sim/test/support.h"

namespace simtest {

void* hsa_symbol(const char* name);
template <typename Function>
Function* hsa(const char* name) {
  return reinterpret_cast<Function*>(hsa_symbol(name));
}

struct Gpu {
  hsa_agent_t agent;
  hsa_amd_memory_pool_t coarse, fine, group;
};
struct Machine {
  hsa_agent_t processor;
  hsa_amd_memory_pool_t host;
  std::vector<Gpu> gpu;
};

// hsa_init, and every agent with its pools.
Machine hsa_start();
int hsa_stop();

int pool_take(hsa_amd_memory_pool_t pool, size_t bytes, void** out, uint32_t flags = 0);
int pool_free(void* address);
template <typename Value>
Value agent_info(hsa_agent_t agent, uint32_t attribute) {
  Value value{};
  EXPECT_EQ(hsa<int(hsa_agent_t, uint32_t, void*)>("hsa_agent_get_info")(agent, attribute, &value),
            0);
  return value;
}
std::string agent_text(hsa_agent_t agent, uint32_t attribute);
inline uint64_t free_bytes(const Gpu& gpu) {
  return agent_info<uint64_t>(gpu.agent, sim::kAgentMemoryAvail);
}

hsa_signal_t signal_make(int64_t value);
int64_t signal_load(hsa_signal_t signal);
void signal_store(hsa_signal_t signal, int64_t value);
// Waits, a minute at most, until the value is this one, and says whether it is.
bool signal_reaches(hsa_signal_t signal, int64_t value);

inline constexpr uint64_t kKiB = 1 << 10;
inline constexpr uint64_t kContext = kMiB;  // what hsa_init takes of each device of these profiles

}  // namespace simtest
