// A ResourceClaim as allocated by the scheduler, restricted to devices of this driver.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/dra/device.h"

namespace fracgpu::tools::dra {

// A device of which the claim has a part.
struct Allocated {
  std::string request;   // of the claim; a subrequest's is the request's
  std::string pool;      // the node's name
  std::string device;    // Device::name
  std::string share_id;  // of this part within the device; empty: none
  std::string cdi;       // the vendor's name for it
};

struct Claim {
  std::string space, name, uid;
  std::vector<Allocated> devices;
  // Bytes by Device::key: the sum of all parts of the device.
  std::map<std::string, uint64_t> caps;
  std::map<std::string, std::string> environment;  // of its containers; see parameters.h

  std::string label() const { return space + "/" + name; }
};

// Reads the API server's claim. Throws std::runtime_error with one line for the claim's event if it
// cannot be prepared: another claim has that name, it is not allocated, a device is not in
// `devices`, an amount is zero or exceeds the device, or its configuration is not understood.
Claim read_claim(const Json& object, const std::string& uid, const std::vector<Device>& devices);

}  // namespace fracgpu::tools::dra
