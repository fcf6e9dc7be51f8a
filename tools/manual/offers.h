// Words for an argument that depend on this machine: its GPUs, and what they can be divided into.
// The completions ask for them through the hidden option --offer, anew for each completion.
#pragma once

#include <string>

namespace fracgpu::tools {

// The words for "gpus", "gpu", "board", "mig", "partition", "compute" or "memory", one a line.
// Empty for anything else, and if there is nothing of the kind.
std::string offers_for(const std::string& what);

}  // namespace fracgpu::tools
