// Reads the limits and names devices for them; see configuration.h.
#include "shim/process/configuration.h"

#include <algorithm>

#include "shim/base/report.h"
#include "shim/config/ceiling.h"
#include "shim/vendor/backend.h"

namespace fracgpu {

bool Configuration::read(Message& error) {
  if (!read_ceiling(kCeilingFile, ceiling_, error) || !asked_.read(error)) return false;
  if (!asked_.unenforced().empty()) {
    report(Level::warn, "{} is set: fracgpu limits memory only, not the use of compute",
           asked_.unenforced());
  }
  return true;
}

uint64_t Configuration::cap_for(const DeviceName& device, uint64_t physical) const {
  return std::min(asked_.cap_for(device, physical), ceiling_.cap_for(device, physical));
}

bool Configuration::name_device(const char* device_key, DeviceName& device, Message& error) const {
  device = DeviceName{.key = device_key};
  const VendorBackend& vendor = backend_of(device_key);
  const char* missing = nullptr;
  // A GPU's own name selects each of its MIG instances that no other selector covers.
  if (selects_by(Selector::Kind::key) && vendor.is_partition(device_key) &&
      !vendor.parent_of(device_key, device.whole) && cap_for(device, 1) == UINT64_MAX) {
    missing = "GPU";
  }
  if (selects_by(Selector::Kind::index) && !vendor.index_of(device_key, device.index)) {
    missing = "index";
  }
  if (selects_by(Selector::Kind::bus_id)) {
    device.has_bus_id = vendor.bus_id_of(device_key, device.bus_id);
    if (!device.has_bus_id) missing = "bus id";
  }
  if (missing == nullptr) return true;
  error.format(
      "the limit names devices by {0}, but the {0} of {1} cannot be found out (no NVML?); name it "
      "by its own name",
      missing, device_key);
  return false;
}

Text<64> Configuration::unknown_selector() const {
  const Text<64> unknown = asked_.unknown_selector(device_may_exist);
  return unknown.empty() ? Text<64>(ceiling_.unknown_selector(device_may_exist)) : unknown;
}

}  // namespace fracgpu
