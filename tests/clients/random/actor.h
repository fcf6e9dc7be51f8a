// The actors of CUDA's driver API; see actor_base.h.
#pragma once

#include "actor_base.h"
#include "hooks/cuda/abi.h"

namespace client {

using namespace fracgpu::cuda;

// The driver's exported function of this name, by dlsym; ends the program when there is none.
void* driver_function(const char* name);

// Calls it. The arguments must have exactly the types of the driver's prototype.
template <typename... Arguments>
int call(const char* name, Arguments... arguments) {
  return reinterpret_cast<int (*)(Arguments...)>(driver_function(name))(arguments...);
}

std::unique_ptr<Actor> make_linear(const World& world, uint64_t seed);
std::unique_ptr<Actor> make_managed(const World& world, uint64_t seed);
std::unique_ptr<Actor> make_vmm(const World& world, uint64_t seed);
std::unique_ptr<Actor> make_pools(const World& world, uint64_t seed);
std::unique_ptr<Actor> make_arrays(const World& world, uint64_t seed);
std::unique_ptr<Actor> make_graphs(const World& world, uint64_t seed);
std::unique_ptr<Actor> make_sharing(const World& world, uint64_t seed);
std::unique_ptr<Actor> make_overhead(const World& world, uint64_t seed);

}  // namespace client
