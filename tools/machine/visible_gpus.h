// The GPUs of the machine that this process's environment leaves visible, by the rules of the
// libraries that read it: CUDA_VISIBLE_DEVICES (CUDA), ROCR_VISIBLE_DEVICES (ROCr) and, among the
// devices that ROCr shows, HIP_VISIBLE_DEVICES or otherwise CUDA_VISIBLE_DEVICES (HIP).
#pragma once

#include <string>
#include <vector>

#include "tools/machine/gpus.h"

namespace fracgpu::tools {

// For each of `gpus`, which must be all GPUs of the machine: empty if it is visible, otherwise what
// hides it, as in "CUDA_VISIBLE_DEVICES '0,2' hides it". A list that only CUDA itself can interpret
// hides all GPUs that it might hide.
std::vector<std::string> hidden_by_environment(const std::vector<Gpu>& gpus);

// Whether CUDA_VISIBLE_DEVICES names MIG instances. They are then used without a request.
bool environment_names_instances();

}  // namespace fracgpu::tools
