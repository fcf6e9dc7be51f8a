// The device nodes through which NVIDIA's driver lets processes use a MIG instance: one for the GPU
// instance and one for the compute instance. The kernel shows their numbers in /proc but does not
// make the nodes. nvidia-modprobe makes them. Only processes with CAP_SYS_ADMIN need no node
// (NVIDIA's MIG User Guide, "Device Nodes and Capabilities").
#pragma once

#include <string>
#include <vector>

#include "tools/machine/gpus.h"

namespace fracgpu::tools {

struct CapabilityNode {
  std::string node;      // "/dev/nvidia-caps/nvidia-cap12"
  std::string file;      // in /proc, which describes it
  bool may_make = true;  // whether nvidia-modprobe may make it
  bool is_there() const;
};
using CapabilityNodes = std::vector<CapabilityNode>;

// Empty if the kernel shows none, as in most containers.
CapabilityNodes capability_nodes(const MigInstance& instance);

// The nodes that do not exist.
CapabilityNodes missing(CapabilityNodes nodes);

// `lack_of` reports the missing nodes of the instance, and `remedy_for` what to do.
std::string lack_of(const std::string& instance, const CapabilityNodes& missing);
std::string remedy_for(const CapabilityNodes& missing);

}  // namespace fracgpu::tools
