// What NVIDIA's kernel driver shows of MIG instances in /proc: one file for each GPU instance and
// each compute instance, which tells the number of its device node. They lie below a folder that
// FRACGPU_SIM_CAPS_ROOT names, and nothing is written without it; libsimkfd shows them, and
// /dev/nvidia-caps beside them, under their real names. The device nodes are made by
// nvidia-modprobe, not by the kernel, and so not here either.
#pragma once

#include "sim/node/node.h"

namespace sim {

inline constexpr const char* kCapsVariable = "FRACGPU_SIM_CAPS_ROOT";

// Writes those of the GPU's instances, and takes away those of others, which are gone. Under the
// MIG lock, or while nobody else has the node.
void show_capabilities(const Node& node, int gpu);

}  // namespace sim
