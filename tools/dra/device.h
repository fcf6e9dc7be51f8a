// The devices that Kubernetes shares: the GPUs, MIG instances and AMD partitions of this node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/cli/json.h"

namespace fracgpu::tools::dra {

// The driver's name, which its devices, attributes and DeviceClasses use.
inline constexpr char kDriver[] = "fracgpu.dev";

struct Device {
  std::string name;     // in Kubernetes: the key, in lower case
  std::string key;      // in a ceiling: GPU-…, MIG-…, AMD-…
  std::string type;     // "gpu", or "mig" and "partition" for a part of one
  std::string cdi;      // the vendor's own name for container engines
  uint64_t memory = 0;  // bytes that claims can get, whole MiB
  // Attributes; empty: not known.
  std::string vendor{}, product{}, uuid{}, parent{}, bus_id{}, driver_version{}, mode{};

  bool operator==(const Device&) const = default;
};

// Devices of both vendors. A child with a deadline calls the drivers, so that one that hangs or
// crashes does no harm. Throws std::runtime_error with one line. The child is this program, started
// as `PROGRAM doctor --probe devices`. It must then call be_devices_probe and exit with its status.
std::vector<Device> ask_for_devices();
int be_devices_probe();

Json json_of(const Device& device);
Device device_of(const Json& json);

}  // namespace fracgpu::tools::dra
