// Words for an argument that this machine decides: its GPUs, and what they can be divided into. The
// completions ask for them by the hidden option --offer each time somebody wants one completed.
#pragma once

#include <string>

namespace fracgpu::tools {

// What is offered for "gpus", "gpu", "board", "mig", "partition", "compute" or "memory", a line for
// each word. Empty for anything else, and where there is nothing of the kind.
std::string offers_for(const std::string& what);

}  // namespace fracgpu::tools
