// Caches of agents: two levels each. A handle is its agent's with the level in the low bits.
#include <cstring>

#include "sim/hsa/runtime.h"

using sim::Agent;
using sim::answer;
using sim::Runtime;

namespace {

constexpr uint64_t kLevels = 2;
static_assert(alignof(Agent) > kLevels);

}  // namespace

SIM_API hsa_status_t hsa_agent_iterate_caches(hsa_agent_t given,
                                              hsa_status_t (*callback)(hsa_cache_t, void*),
                                              void* data) {
  SIM_CALL(hsa_agent_iterate_caches);
  if (callback == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  if (Runtime::get().find(given) == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  for (uint64_t level = 1; level <= kLevels; ++level) {
    const hsa_status_t result = callback({given.handle | level}, data);
    if (result != HSA_STATUS_SUCCESS) return result;
  }
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_cache_get_info(hsa_cache_t cache, hsa_cache_info_t attribute,
                                        void* value) {
  SIM_CALL(hsa_cache_get_info);
  if (value == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const uint64_t level = cache.handle % alignof(Agent);
  if (level < 1 || level > kLevels || Runtime::get().find({cache.handle - level}) == nullptr)
    return HSA_STATUS_ERROR_INVALID_CACHE;
  const char name[3] = {'L', static_cast<char>('0' + level), '\0'};
  switch (attribute) {
    case HSA_CACHE_INFO_NAME_LENGTH:
      return answer<uint32_t>(value, 2);
    case HSA_CACHE_INFO_NAME:
      std::memcpy(value, name, sizeof name);
      return HSA_STATUS_SUCCESS;
    case HSA_CACHE_INFO_LEVEL:
      return answer(value, static_cast<uint8_t>(level));
    case HSA_CACHE_INFO_SIZE:
      return answer<uint32_t>(value, level == 1 ? 32 << 10 : 4 << 20);
    default:
      sim::unanswered("hsa_cache_get_info", attribute);
      return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  }
}
