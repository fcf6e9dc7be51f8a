// An instruction set's handle is its agent's. KFD's gfx_target_version is major * 10000 + minor *
// 100 + stepping, in decimal; names have the stepping in hexadecimal. Both simulated products have
// memory with error correction and run with XNACK off.
#include "sim/hsa/isa.h"

#include <cstdio>
#include <cstring>

using sim::Agent;
using sim::answer;
using sim::Runtime;

namespace sim {

std::string processor_name(const DeviceRow& row) {
  char name[32];
  const uint32_t version = row.gfx_target_version;
  std::snprintf(name, sizeof name, "gfx%u%u%x", version / 10000, version / 100 % 100,
                version % 100);
  return name;
}

hsa_isa_t isa_of(const Agent& agent) {
  return {handle(agent).handle};
}

}  // namespace sim

namespace {

std::string isa_name(const Agent& agent) {
  return "amdgcn-amd-amdhsa--" + sim::processor_name(Runtime::get().row(agent)) +
         ":sramecc+:xnack-";
}

const Agent* agent_of(hsa_isa_t isa) {
  const Agent* agent = Runtime::get().find({isa.handle});
  return agent != nullptr && agent->gpu() ? agent : nullptr;
}

hsa_status_t info(const Agent& agent, uint32_t attribute, void* value) {
  const std::string name = isa_name(agent);
  switch (attribute) {
    case HSA_ISA_INFO_NAME_LENGTH:
      return answer(value, static_cast<uint32_t>(name.size() + 1));
    case HSA_ISA_INFO_NAME:
      std::memcpy(value, name.c_str(), name.size() + 1);
      return HSA_STATUS_SUCCESS;
    case HSA_ISA_INFO_CALL_CONVENTION_COUNT:
      return answer<uint32_t>(value, 1);
    case HSA_ISA_INFO_CALL_CONVENTION_INFO_WAVEFRONT_SIZE:
      return answer<uint32_t>(value, 64);
    case HSA_ISA_INFO_CALL_CONVENTION_INFO_WAVEFRONTS_PER_COMPUTE_UNIT:
      return answer<uint32_t>(value, 32);
    case HSA_ISA_INFO_MACHINE_MODELS:
    case HSA_ISA_INFO_PROFILES: {
      const bool flags[2] = {attribute == HSA_ISA_INFO_PROFILES,
                             attribute == HSA_ISA_INFO_MACHINE_MODELS};
      std::memcpy(value, flags, sizeof flags);
      return HSA_STATUS_SUCCESS;
    }
    case HSA_ISA_INFO_DEFAULT_FLOAT_ROUNDING_MODES:
    case HSA_ISA_INFO_BASE_PROFILE_DEFAULT_FLOAT_ROUNDING_MODES: {
      const bool flags[3] = {false, false, true};
      std::memcpy(value, flags, sizeof flags);
      return HSA_STATUS_SUCCESS;
    }
    case HSA_ISA_INFO_FAST_F16_OPERATION:
      return answer(value, true);
    case HSA_ISA_INFO_WORKGROUP_MAX_DIM: {
      const uint16_t most[3] = {1024, 1024, 1024};
      std::memcpy(value, most, sizeof most);
      return HSA_STATUS_SUCCESS;
    }
    case HSA_ISA_INFO_WORKGROUP_MAX_SIZE:
      return answer<uint32_t>(value, 1024);
    case HSA_ISA_INFO_GRID_MAX_DIM:
      return answer(value, hsa_dim3_t{INT32_MAX, 65535, 65535});
    case HSA_ISA_INFO_GRID_MAX_SIZE:
      return answer<uint64_t>(value, UINT32_MAX);
    case HSA_ISA_INFO_FBARRIER_MAX_SIZE:
      return answer<uint32_t>(value, 32);
    default:
      sim::unanswered("hsa_isa_get_info", attribute);
      return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
}

}  // namespace

SIM_API hsa_status_t hsa_agent_iterate_isas(hsa_agent_t given,
                                            hsa_status_t (*callback)(hsa_isa_t, void*),
                                            void* data) {
  SIM_CALL(hsa_agent_iterate_isas);
  if (callback == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Agent* agent = Runtime::get().find(given);
  if (agent == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  return agent->gpu() ? callback(sim::isa_of(*agent), data) : HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_isa_get_info_alt(hsa_isa_t isa, hsa_isa_info_t attribute, void* value) {
  SIM_CALL(hsa_isa_get_info_alt);
  if (value == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Agent* agent = agent_of(isa);
  return agent != nullptr ? info(*agent, attribute, value) : HSA_STATUS_ERROR_INVALID_ISA;
}

SIM_API hsa_status_t hsa_isa_get_info(hsa_isa_t isa, hsa_isa_info_t attribute, uint32_t index,
                                      void* value) {
  SIM_CALL(hsa_isa_get_info);
  if (value == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  if (index != 0) return HSA_STATUS_ERROR_INVALID_INDEX;
  const Agent* agent = agent_of(isa);
  return agent != nullptr ? info(*agent, attribute, value) : HSA_STATUS_ERROR_INVALID_ISA;
}

SIM_API hsa_status_t hsa_isa_from_name(const char* name, hsa_isa_t* out) {
  SIM_CALL(hsa_isa_from_name);
  if (name == nullptr || out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  for (const auto& agent : Runtime::get().agents()) {
    if (!agent->gpu() || isa_name(*agent) != name) continue;
    *out = sim::isa_of(*agent);
    return HSA_STATUS_SUCCESS;
  }
  return HSA_STATUS_ERROR_INVALID_ISA_NAME;
}

SIM_API hsa_status_t hsa_isa_compatible(hsa_isa_t code, hsa_isa_t agent, bool* out) {
  SIM_CALL(hsa_isa_compatible);
  if (out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const Agent* first = agent_of(code);
  const Agent* second = agent_of(agent);
  if (first == nullptr || second == nullptr) return HSA_STATUS_ERROR_INVALID_ISA;
  *out = isa_name(*first) == isa_name(*second);
  return HSA_STATUS_SUCCESS;
}
