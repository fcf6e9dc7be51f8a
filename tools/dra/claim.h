// A ResourceClaim as the scheduler has allocated it, as far as it is about devices of this driver.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/dra/device.h"

namespace fracgpu::tools::dra {

// A device that the claim has a part of.
struct Allocated {
  std::string request;   // of the claim; that of a subrequest is the request's
  std::string pool;      // the node's name
  std::string device;    // Device::name
  std::string share_id;  // of this part among those of the device; empty: none
  std::string cdi;       // the vendor's name for it
};

struct Claim {
  std::string space, name, uid;
  std::vector<Allocated> devices;
  // Bytes by Device::key: what all parts of the device amount to.
  std::map<std::string, uint64_t> caps;
  std::map<std::string, std::string> environment;  // of its containers; see parameters.h

  std::string label() const { return space + "/" + name; }
};

// What the API server says of a claim. Throws std::runtime_error with one line for the claim's
// event where it is not what can be prepared: another claim of that name, not allocated, a device
// that is not in `devices`, an amount of zero or above the device, a configuration that is not
// understood.
Claim read_claim(const Json& object, const std::string& uid, const std::vector<Device>& devices);

}  // namespace fracgpu::tools::dra
