// AMD's runtimes as the probes reach them: opened by name, so that the library is between them
// where it is preloaded.
#pragma once

#include <string>
#include <vector>

#include "hooks/hsa/abi.h"
#include "tests/hardware/probe.h"

namespace hardware {

using namespace fracgpu::hsa;

// Null when there is no such library or no such function in it. HIP: HIP_LIBRARY, else the newest
// that the loader finds.
void* hsa_function(const char* name);
void* hip_function(const char* name);

template <typename... Arguments>
int try_amd(void* (*find)(const char*), const char* name, Arguments... arguments) {
  void* const found = find(name);
  if (found == nullptr) throw Unmeasured(std::string("there is no ") + name);
  return reinterpret_cast<int (*)(Arguments...)>(found)(arguments...);
}
template <typename... Arguments>
int try_hsa(const char* name, Arguments... arguments) {
  return try_amd(hsa_function, name, arguments...);
}
template <typename... Arguments>
void hsa(const char* name, Arguments... arguments) {
  if (const int rc = try_hsa(name, arguments...)) {
    throw Unmeasured(std::string(name) + ": status " + std::to_string(rc));
  }
}
template <typename... Arguments>
int try_hip(const char* name, Arguments... arguments) {
  return try_amd(hip_function, name, arguments...);
}
template <typename... Arguments>
void hip(const char* name, Arguments... arguments) {
  if (const int rc = try_hip(name, arguments...)) {
    throw Unmeasured(std::string(name) + ": HIP error " + std::to_string(rc));
  }
}

struct HsaGpu {
  hsa_agent_t agent;
  hsa_amd_memory_pool_t pool;  // the first of its global segment
};

// hsa_init, and the first GPU.
HsaGpu begin_hsa();

template <typename Value>
Value agent_value(hsa_agent_t agent, int attribute) {
  Value value = {};
  void* const out = &value;
  hsa("hsa_agent_get_info", agent, attribute, out);
  return value;
}

}  // namespace hardware
