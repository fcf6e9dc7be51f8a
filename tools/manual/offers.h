// Words for an argument that depend on this machine: its GPUs, and what they can be divided into.
// They are asked for anew for each completion.
#pragma once

#include <string>
#include <vector>

namespace fracgpu::tools {

// The words for "gpus", "gpu", "board", "mig", "partition", "compute" or "memory". Empty for
// anything else, and if there is nothing of the kind.
std::vector<std::string> offers_for(const std::string& what);

}  // namespace fracgpu::tools
