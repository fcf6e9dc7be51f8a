// See json_values.h.
#include "tools/machine/json_values.h"

namespace fracgpu::tools {

Json json_of(const DeviceUse& device) {
  return {
      {"key", device.key},
      {"cap_bytes", or_null(device.cap)},
      {"physical_bytes", device.physical},
      {"used_bytes", device.used},
      {"peak_bytes", device.peak},
      {"needed_bytes", or_null(device.needed)},
      {"refusals", device.refusals.total()},
      {"refusals_by_reason", json_of(device.refusals)},
      {"damaged", device.damaged},
      {"processes", array_of(device.processes)},
  };
}

Json json_of(const TenantUse& tenant) {
  return {
      {"tenant", tenant.name},
      {"claim", tenant.claim.empty() ? Json(nullptr) : Json(tenant.claim)},
      {"path", tenant.path},
      {"created_unix_s", tenant.created_unix_s},
      {"devices", array_of(tenant.devices)},
      {"refusals_on_unknown_devices", tenant.refusals_elsewhere.total()},
      {"refused", array_of(tenant.refused)},
  };
}

Json json_of(const TenantOnGpu& tenant) {
  return {
      {"tenant", tenant.name},
      {"used_bytes", tenant.use ? Json(tenant.use->used) : Json(nullptr)},
      {"cap_bytes", tenant.use ? or_null(tenant.use->cap) : Json(nullptr)},
      {"claimed", static_cast<double>(tenant.claimed_eighths) / claim_table_layout::kEighths},
  };
}

Json json_of(const Outsider& process) {
  return {
      {"pid", process.pid},
      {"user", process.user},
      {"command", process.command},
      {"used_bytes", or_null(process.used)},
      {"since_unix_s", process.since_unix_s == 0 ? Json(nullptr) : Json(process.since_unix_s)},
  };
}

Json json_of(const GpuState& gpu) {
  return {
      {"key", gpu.key},
      {"index", or_null(gpu.index)},
      {"number", gpu.number.empty() ? Json(nullptr) : Json(gpu.number)},
      {"mig_mode", gpu.divided},
      {"mig_profile", gpu.instance ? Json(gpu.instance->profile) : Json(nullptr)},
      {"mig_parent", gpu.instance ? Json(gpu.instance->parent) : Json(nullptr)},
      {"mig_slices", gpu.instance ? Json(gpu.instance->slices) : Json(nullptr)},
      {"board", or_null(gpu.board)},
      {"board_bus_id", gpu.board ? Json(gpu.board_bus_id) : Json(nullptr)},
      {"mode", gpu.mode.empty() ? Json(nullptr) : Json(gpu.mode)},
      {"physical_bytes", gpu.physical},
      {"used_bytes", gpu.used()},
      {"used_by_tenants_bytes", gpu.held},
      {"used_by_driver_bytes", or_null(gpu.driver_used)},
      {"capped_bytes", gpu.capped},
      {"claimed", static_cast<double>(gpu.claimed_eighths) / claim_table_layout::kEighths},
      {"claimed_bytes", gpu.claimed()},
      {"tenants", array_of(gpu.tenants)},
      {"outsiders_known", gpu.driver_tells},
      {"outsiders", array_of(gpu.outsiders)},
  };
}

Json json_of(const RefusalCounts& counts) {
  Json by_reason = Json::object();
  for (uint32_t i = 0; i < layout::kReasons; ++i) {
    by_reason[name_of(static_cast<Reason>(i))] = counts.by_reason[i];
  }
  return by_reason;
}

Json json_of(const RefusalUse& refusal) {
  return {
      {"number", refusal.number},
      {"unix_ms", refusal.unix_ms},
      {"reason", name_of(refusal.reason)},
      {"device", refusal.key.empty() ? Json(nullptr) : Json(refusal.key)},
      {"api", refusal.api},
      {"host_pid", known_pid(refusal.host_pid)},
      {"pid", refusal.pid},
      {"uid", refusal.uid},
      {"user", refusal.user},
      {"command", refusal.command},
      {"asked_bytes", or_null(refusal.asked)},
      {"needed_bytes", or_null(refusal.needed)},
      {"cap_bytes", or_null(refusal.cap)},
      {"used_bytes", refusal.held},
      {"own_bytes", refusal.own},
      {"largest_bytes", refusal.largest},
      {"largest_pid", known_pid(refusal.largest_pid)},
      {"largest_command", refusal.largest_command},
  };
}

Json json_of(const ProcessUse& process) {
  return {
      {"host_pid", known_pid(process.host_pid)},
      {"pid", process.pid},
      {"pid_namespace", process.pid_namespace},
      {"uid", process.uid},
      {"user", process.user},
      {"command", process.command},
      {"alive", process.alive},
      {"orphaned", process.orphaned},
      {"foreign_importer", process.foreign_importer},
      {"used_bytes", process.used},
      {"imported_bytes", process.imported},
      {"leased_bytes", process.leased},
      {"peak_bytes", process.peak},
      {"implicit_bytes", process.overhead},
      {"allocations", or_null(process.allocations)},
      {"allocations_unix_s",
       process.allocations ? Json(process.allocations_unix_s) : Json(nullptr)},
      {"driver_bytes", or_null(process.driver_used)},
      {"since_unix_s", process.since_unix_s},
  };
}

}  // namespace fracgpu::tools
