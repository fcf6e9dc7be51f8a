// The caps that this process is configured for, device by device.
#pragma once

#include <cstdint>

#include "shim/config/device_name.h"
#include "shim/config/environment_limits.h"
#include "shim/config/limits.h"

namespace fracgpu {

// The limits of the environment and the ceiling file together.
class Configuration {
 public:
  // False with `error` set if either is malformed or the file cannot be trusted.
  bool read(Message& error);

  // The cap in bytes; UINT64_MAX if the device is not capped.
  uint64_t cap_for(const DeviceName& device, uint64_t physical) const;

  bool selects_by(Selector::Kind kind) const {
    return asked_.selects_by(kind) || ceiling_.selects_by(kind);
  }

  // Fills in what the selectors need to know about the device. False with `error` set if some of it
  // cannot be found out.
  bool name_device(const char* device_key, DeviceName& device, Message& error) const;

  // A selector that names no device of this machine, or empty.
  Text<64> unknown_selector() const;

 private:
  EnvironmentLimits asked_;
  Limits ceiling_;  // empty: there is no ceiling file
};

}  // namespace fracgpu
