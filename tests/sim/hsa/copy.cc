// Copies and fills, which the host's processor does when their turn comes, and when they were.
#include <cstring>

#include "sim/hsa/memory.h"
#include "sim/hsa/queue.h"
#include "sim/hsa/signal.h"

using sim::Runtime;

namespace {

constexpr uint32_t kEngines = 0x3;

hsa_status_t copy(void* to, hsa_agent_t to_agent, const void* from, hsa_agent_t from_agent,
                  size_t bytes, uint32_t count, const hsa_signal_t* awaited,
                  hsa_signal_t completion) {
  if (to == nullptr || from == nullptr || (count != 0) != (awaited != nullptr))
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  if (Runtime::get().find(to_agent) == nullptr || Runtime::get().find(from_agent) == nullptr)
    return HSA_STATUS_ERROR_INVALID_AGENT;
  sim::when_zero(count, awaited, [=] {
    const uint64_t start = sim::timestamp();
    std::memmove(to, from, bytes);
    sim::complete(completion, start, sim::timestamp());
  });
  return HSA_STATUS_SUCCESS;
}

// Whose memory it is; null for host memory.
const sim::Agent* device_of(const void* address) {
  const sim::Guard guard(Runtime::get().lock());
  const sim::Allocation* const found = sim::memory().around(reinterpret_cast<uint64_t>(address));
  return found != nullptr && found->owner != nullptr && found->owner->gpu() ? found->owner
                                                                            : nullptr;
}

uint8_t* place(const hsa_pitched_ptr_t& memory, const hsa_dim3_t& at, uint32_t y, uint32_t z) {
  return static_cast<uint8_t*>(memory.base) + (at.z + z) * memory.slice +
         (at.y + y) * memory.pitch + at.x;
}

}  // namespace

SIM_API hsa_status_t hsa_memory_copy(void* to, const void* from, size_t bytes) {
  SIM_CALL(hsa_memory_copy);
  if (to == nullptr || from == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const sim::Agent* const device = device_of(to);
  if (device != nullptr && device == device_of(from) && !sim::ensure_own_queue(*device))
    return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  std::memmove(to, from, bytes);
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_memory_fill(void* to, uint32_t value, size_t count) {
  SIM_CALL(hsa_amd_memory_fill);
  if (to == nullptr || reinterpret_cast<uint64_t>(to) % sizeof value != 0)
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  const sim::Agent* const device = device_of(to);
  if (device != nullptr && !sim::ensure_own_queue(*device))
    return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  for (size_t i = 0; i < count; ++i) static_cast<uint32_t*>(to)[i] = value;
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_memory_async_copy(void* to, hsa_agent_t to_agent, const void* from,
                                               hsa_agent_t from_agent, size_t bytes, uint32_t count,
                                               const hsa_signal_t* awaited,
                                               hsa_signal_t completion) {
  SIM_CALL(hsa_amd_memory_async_copy);
  return copy(to, to_agent, from, from_agent, bytes, count, awaited, completion);
}

SIM_API hsa_status_t hsa_amd_memory_async_copy_on_engine(void* to, hsa_agent_t to_agent,
                                                         const void* from, hsa_agent_t from_agent,
                                                         size_t bytes, uint32_t count,
                                                         const hsa_signal_t* awaited,
                                                         hsa_signal_t completion, uint32_t engine,
                                                         bool /*force*/) {
  SIM_CALL(hsa_amd_memory_async_copy_on_engine);
  if (engine == 0 || (engine & (engine - 1)) != 0) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  return copy(to, to_agent, from, from_agent, bytes, count, awaited, completion);
}

// All engines are idle, always.
SIM_API hsa_status_t hsa_amd_memory_copy_engine_status(hsa_agent_t /*to*/, hsa_agent_t /*from*/,
                                                       uint32_t* mask) {
  SIM_CALL(hsa_amd_memory_copy_engine_status);
  if (mask == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  *mask = kEngines;
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_memory_get_preferred_copy_engine(hsa_agent_t /*to*/,
                                                              hsa_agent_t /*from*/,
                                                              uint32_t* mask) {
  SIM_CALL(hsa_amd_memory_get_preferred_copy_engine);
  if (mask == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  *mask = kEngines;
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_memory_async_copy_rect(
    const hsa_pitched_ptr_t* to, const hsa_dim3_t* to_offset, const hsa_pitched_ptr_t* from,
    const hsa_dim3_t* from_offset, const hsa_dim3_t* range, hsa_agent_t agent,
    hsa_amd_copy_direction_t /*direction*/, uint32_t count, const hsa_signal_t* awaited,
    hsa_signal_t completion) {
  SIM_CALL(hsa_amd_memory_async_copy_rect);
  if (to == nullptr || from == nullptr || to_offset == nullptr || from_offset == nullptr ||
      range == nullptr || (count != 0) != (awaited != nullptr))
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  if (Runtime::get().find(agent) == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  sim::when_zero(
      count, awaited,
      [=, to = *to, from = *from, to_at = *to_offset, from_at = *from_offset, range = *range] {
        const uint64_t start = sim::timestamp();
        for (uint32_t z = 0; z < range.z; ++z) {
          for (uint32_t y = 0; y < range.y; ++y)
            std::memmove(place(to, to_at, y, z), place(from, from_at, y, z), range.x);
        }
        sim::complete(completion, start, sim::timestamp());
      });
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_profiling_async_copy_enable(bool /*enable*/) {
  SIM_CALL(hsa_amd_profiling_async_copy_enable);
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_profiling_get_async_copy_time(
    hsa_signal_t signal, hsa_amd_profiling_async_copy_time_t* out) {
  SIM_CALL(hsa_amd_profiling_get_async_copy_time);
  if (out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  if (signal.handle == 0) return HSA_STATUS_ERROR_INVALID_SIGNAL;
  *out = {sim::signal_of(signal).start_ts, sim::signal_of(signal).end_ts};
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_profiling_get_dispatch_time(hsa_agent_t agent, hsa_signal_t signal,
                                                         hsa_amd_profiling_dispatch_time_t* out) {
  SIM_CALL(hsa_amd_profiling_get_dispatch_time);
  if (out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  if (Runtime::get().find(agent) == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  if (signal.handle == 0) return HSA_STATUS_ERROR_INVALID_SIGNAL;
  *out = {sim::signal_of(signal).start_ts, sim::signal_of(signal).end_ts};
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_amd_profiling_convert_tick_to_system_domain(hsa_agent_t /*agent*/,
                                                                     uint64_t tick, uint64_t* out) {
  SIM_CALL(hsa_amd_profiling_convert_tick_to_system_domain);
  if (out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  *out = tick;
  return HSA_STATUS_SUCCESS;
}
