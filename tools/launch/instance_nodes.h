// The device nodes of a MIG instance that was made for a launch.
#pragma once

#include "tools/machine/gpus.h"

namespace fracgpu::tools {

// Lets nvidia-modprobe make those that are missing, and complains in one line of what is missing
// then.
void provide_nodes(const Gpu& instance);

}  // namespace fracgpu::tools
