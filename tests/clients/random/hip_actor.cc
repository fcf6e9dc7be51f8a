// HIP for the actors; see hip_actor.h.
#include "hip_actor.h"

namespace client {
namespace hip {
namespace {

int visit_agent(uint64_t agent, void* out) {
  int type = 0;
  call("hsa_agent_get_info", agent, 17, static_cast<void*>(&type));
  if (type == 1 && *static_cast<uint64_t*>(out) == 0) *static_cast<uint64_t*>(out) = agent;
  return 0;
}

int visit_pool(uint64_t pool, void* out) {
  int segment = -1;
  call("hsa_amd_memory_pool_get_info", pool, 0, static_cast<void*>(&segment));
  if (segment == 0 && *static_cast<uint64_t*>(out) == 0) *static_cast<uint64_t*>(out) = pool;
  return 0;
}

uint64_t find_agent() {
  uint64_t agent = 0;
  call("hsa_iterate_agents", &visit_agent, static_cast<void*>(&agent));
  return agent;
}

uint64_t find_pool() {
  uint64_t pool = 0;
  call("hsa_amd_agent_iterate_memory_pools", agent(), &visit_pool, static_cast<void*>(&pool));
  return pool;
}

}  // namespace

uint64_t agent() {
  static const uint64_t found = find_agent();
  return found;
}

uint64_t device_pool() {
  static const uint64_t pool = find_pool();
  return pool;
}

}  // namespace hip

using hip::call;

const Api api = {
    .name = "random_hip",
    .begin =
        [](World&) {
          // The first use of the device is out of the way before the cap is full.
          void* pointer = nullptr;
          return call("hipInit", 0u) == 0 && call("hipSetDevice", 0) == 0 &&
                 call("hsa_init") == 0 && call("hipMalloc", &pointer, size_t{1}) == 0 &&
                 call("hipFree", pointer) == 0 && hip::device_pool() != 0;
        },
    .begin_thread = [](const World&) { call("hipSetDevice", 0); },
    .settle = [] { call("hipDeviceSynchronize"); },
    .free_bytes =
        [] {
          size_t free = 0, total = 0;
          return call("hipMemGetInfo", &free, &total) == 0 ? uint64_t{free} : 0;
        },
    .out_of_memory =
        [](int result) { return result == hip::kOutOfMemory || result == hip::kHsaOutOfResources; },
    .ask_too_much =
        [] {
          void* pointer = nullptr;
          call("hipMalloc", &pointer, size_t{1} << 50);
        },
};

std::unique_ptr<Actor> make_actor(const std::string& family, const World& world, uint64_t seed) {
  if (family == "linear") return hip::make_linear(world, seed);
  if (family == "pools") return hip::make_pools(world, seed);
  if (family == "arrays") return hip::make_arrays(world, seed);
  if (family == "streams") return hip::make_streams(world, seed);
  if (family == "hsa") return hip::make_hsa(world, seed);
  if (family == "kernels") return hip::make_kernels(world, seed);
  if (family == "modules") return hip::make_modules(world, seed);
  if (family == "sharing") return hip::make_sharing(world, seed);
  if (family == "vmem") return hip::make_vmem(world, seed);
  return nullptr;
}

}  // namespace client
