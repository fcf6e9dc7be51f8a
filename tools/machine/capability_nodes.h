// The device nodes by which NVIDIA's driver lets processes use a MIG instance: one for the GPU
// instance and one for the compute instance. The kernel tells their numbers in /proc and makes
// none of them; nvidia-modprobe does. Only who has CAP_SYS_ADMIN can do without (NVIDIA's MIG User
// Guide, "Device Nodes and Capabilities").
#pragma once

#include <string>
#include <vector>

#include "tools/machine/gpus.h"

namespace fracgpu::tools {

struct CapabilityNode {
  std::string node;      // "/dev/nvidia-caps/nvidia-cap12"
  std::string file;      // in /proc, which tells of it
  bool may_make = true;  // nvidia-modprobe may
  bool is_there() const;
};
using CapabilityNodes = std::vector<CapabilityNode>;

// Empty where the kernel tells of none, as in most containers.
CapabilityNodes capability_nodes(const MigInstance& instance);

// Those that are not there.
CapabilityNodes missing(CapabilityNodes nodes);

// That the instance lacks them, and what to do.
std::string lack_of(const std::string& instance, const CapabilityNodes& missing);
std::string remedy_for(const CapabilityNodes& missing);

}  // namespace fracgpu::tools
