// `fracgpu status --json`.
#include <nlohmann/json.hpp>

#include "tools/status.h"

namespace fracgpu::tools {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const ProcessUse& process) {
  return {
      {"host_pid", process.host_pid == 0 ? Json(nullptr) : Json(process.host_pid)},
      {"pid", process.pid},
      {"pid_namespace", process.pid_namespace},
      {"uid", process.uid},
      {"user", process.user},
      {"command", process.command},
      {"alive", process.alive},
      {"orphaned", process.orphaned},
      {"used_bytes", process.used},
      {"leased_bytes", process.leased},
      {"peak_bytes", process.peak},
      {"implicit_bytes", process.implicit},
      {"since_unix_s", process.since_unix_s},
  };
}

Json json_of(const DeviceUse& device) {
  Json processes = Json::array();
  for (const ProcessUse& process : device.processes) processes.push_back(json_of(process));
  return {
      {"key", device.key},
      {"cap_bytes", device.cap ? Json(*device.cap) : Json(nullptr)},
      {"physical_bytes", device.physical},
      {"used_bytes", device.used},
      {"peak_bytes", device.peak},
      {"refusals", device.refusals},
      {"damaged", device.damaged},
      {"processes", processes},
  };
}

}  // namespace

std::string status_json(const std::vector<TenantUse>& tenants) {
  Json list = Json::array();
  for (const TenantUse& tenant : tenants) {
    Json devices = Json::array();
    for (const DeviceUse& device : tenant.devices) devices.push_back(json_of(device));
    list.push_back({{"tenant", tenant.name},
                    {"path", tenant.path},
                    {"created_unix_s", tenant.created_unix_s},
                    {"devices", devices}});
  }
  return Json{{"tenants", list}}.dump(2) + "\n";
}

}  // namespace fracgpu::tools
