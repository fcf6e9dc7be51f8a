// Which of the machine's GPUs this process's environment still shows, by the rules of the libraries
// that obey it: CUDA_VISIBLE_DEVICES (CUDA), ROCR_VISIBLE_DEVICES (ROCr) and, of what ROCr shows,
// HIP_VISIBLE_DEVICES or, without it, CUDA_VISIBLE_DEVICES (HIP).
#pragma once

#include <string>
#include <vector>

#include "tools/machine/gpus.h"

namespace fracgpu::tools {

// For each of `gpus`, which must be all of the machine: empty where it is visible; else who hides
// it and how, as "CUDA_VISIBLE_DEVICES '0,2' hides it". Where a list cannot be understood without
// asking CUDA itself, it hides all that it might.
std::vector<std::string> hidden_by_environment(const std::vector<Gpu>& gpus);

// Whether CUDA_VISIBLE_DEVICES names MIG instances, which are used then without being asked for.
bool environment_names_instances();

}  // namespace fracgpu::tools
