// The device nodes of a MIG instance that was made for a launch.
#pragma once

#include "tools/machine/gpus.h"

namespace fracgpu::tools {

// Runs nvidia-modprobe to make missing nodes, and reports those that are then still missing in one
// line.
void provide_nodes(const Gpu& instance);

}  // namespace fracgpu::tools
