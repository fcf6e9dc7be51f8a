// See claim.h. The fields: https://kubernetes.io/docs/reference/kubernetes-api
// (resource.k8s.io/v1).
#include "tools/dra/claim.h"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "fracgpu/ledger_layout.h"
#include "shim/base/text.h"
#include "tools/dra/parameters.h"
#include "tools/dra/quantity.h"

namespace fracgpu::tools::dra {
namespace {

constexpr char kCapacity[] = "memory";

[[noreturn]] void refuse(const std::string& line) {
  throw std::runtime_error(line);
}

std::string shown(std::string_view text) {
  return std::string(fracgpu::quoted(text).view());
}

// The scheduler turns zero into the least amount that a device gives. A user who wrote zero meant
// something else.
void check_requests(const Json& object) {
  for (const Json& request : object["spec"]["devices"]["requests"].items()) {
    std::vector<Json> forms = request["firstAvailable"].items();
    forms.push_back(request["exactly"]);
    for (const Json& form : forms) {
      const Json& amount = form["capacity"]["requests"][kCapacity];
      if (!amount.is_string() || bytes_of(amount.text()).value_or(1) != 0) continue;
      refuse(
          fmt::format("request {} asks for {} of memory; write an amount as 4Gi, or leave "
                      "capacity out for all of the device",
                      shown(request.value("name", "")), shown(amount.text())));
    }
  }
}

const Device& find(const std::vector<Device>& devices, std::string_view name) {
  const auto found = std::find_if(devices.begin(), devices.end(),
                                  [&](const Device& device) { return device.name == name; });
  if (found != devices.end()) return *found;
  refuse(
      fmt::format("device {} was allocated, which this node does not have any more; delete the "
                  "pod, so that another device is chosen",
                  shown(name)));
}

uint64_t consumed(const Json& result, const Device& device) {
  const Json& amount = result["consumedCapacity"][kCapacity];
  if (!amount.is_string()) {
    refuse(
        fmt::format("device {} was allocated without an amount of memory; the scheduler must "
                    "know consumable capacity (DRAConsumableCapacity, Kubernetes 1.36)",
                    device.name));
  }
  const auto bytes = bytes_of(amount.text());
  if (!bytes || *bytes == 0 || *bytes > device.memory) {
    refuse(fmt::format("{} of memory cannot be had of device {}, which has {}",
                       shown(amount.text()), device.name, quantity_of(device.memory)));
  }
  return *bytes;
}

}  // namespace

Claim read_claim(const Json& object, const std::string& uid, const std::vector<Device>& devices) {
  const Json& metadata = object["metadata"];
  Claim claim{.space = metadata.value("namespace", ""),
              .name = metadata.value("name", ""),
              .uid = metadata.value("uid", ""),
              .devices = {},
              .caps = {},
              .environment = {}};
  if (claim.uid != uid) {
    refuse(
        fmt::format("there is another claim of that name by now, {} and not {}", claim.uid, uid));
  }
  const Json& allocation = object["status"]["allocation"];
  if (!allocation.is_object()) refuse("the claim is not allocated");
  check_requests(object);
  claim.environment = environment_of(allocation);
  for (const Json& result : allocation["devices"]["results"].items()) {
    if (result.value("driver", "") != kDriver) continue;
    const Device& device = find(devices, result.value("device", ""));
    if (result.value("adminAccess", false)) {
      refuse(fmt::format("adminAccess to device {} is not given: it would be under no cap",
                         device.name));
    }
    const std::string request = result.value("request", "");
    claim.devices.push_back({.request = request.substr(0, request.find('/')),
                             .pool = result.value("pool", ""),
                             .device = device.name,
                             .share_id = result.value("shareID", ""),
                             .cdi = device.cdi});
    claim.caps[device.key] += consumed(result, device);
  }
  if (claim.caps.size() > layout::kMaxDevices) {
    refuse(fmt::format("the claim has {} devices, and a tenant may use {}; make several claims",
                       claim.caps.size(), layout::kMaxDevices));
  }
  if (claim.devices.empty()) refuse(fmt::format("no device of {} was allocated", kDriver));
  return claim;
}

}  // namespace fracgpu::tools::dra
