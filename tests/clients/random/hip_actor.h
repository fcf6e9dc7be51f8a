// The actors of HIP and of HSA under it; see actor_base.h.
#pragma once

#include "actor_base.h"
#include "tests/clients/hip_api.h"

namespace client::hip {

inline constexpr int kHsaOutOfResources = 0x1008;

// The coarse-grained memory pool of the device, as HSA knows it. HSA's handles are structs of one
// uint64_t, which are passed as that.
uint64_t device_pool();
uint64_t agent();  // the device

std::unique_ptr<Actor> make_linear(const World& world, uint64_t seed);
std::unique_ptr<Actor> make_pools(const World& world, uint64_t seed);
std::unique_ptr<Actor> make_arrays(const World& world, uint64_t seed);
std::unique_ptr<Actor> make_streams(const World& world, uint64_t seed);
std::unique_ptr<Actor> make_hsa(const World& world, uint64_t seed);
std::unique_ptr<Actor> make_kernels(const World& world, uint64_t seed);
std::unique_ptr<Actor> make_modules(const World& world, uint64_t seed);
std::unique_ptr<Actor> make_sharing(const World& world, uint64_t seed);
std::unique_ptr<Actor> make_vmem(const World& world, uint64_t seed);

}  // namespace client::hip
