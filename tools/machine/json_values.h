// JSON values that several subcommands print. Fields may be added, never renamed.
#pragma once

#include "tools/cli/json.h"
#include "tools/machine/machine_state.h"

namespace fracgpu::tools {

// The value, or null.
template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

inline Json known_pid(uint32_t host_pid) {
  return host_pid == 0 ? Json(nullptr) : Json(host_pid);
}

Json json_of(const RefusalCounts& counts);
Json json_of(const RefusalUse& refusal);
Json json_of(const ProcessUse& process);
Json json_of(const DeviceUse& device);
Json json_of(const TenantUse& tenant);
Json json_of(const TenantOnGpu& tenant);
Json json_of(const Outsider& process);
Json json_of(const GpuState& gpu);

template <typename List>
Json array_of(const List& list) {
  Json array = Json::array();
  for (const auto& each : list) array.push_back(json_of(each));
  return array;
}

}  // namespace fracgpu::tools
