// Kernels' local memory, which a launch makes the driver take.
#pragma once

#include "hooks/cuda/hook.h"
#include "shim/config/switch.h"

namespace fracgpu::cuda {

// Whether local memory is reserved before a launch, for CUDA and for OpenCL.
inline constinit Switch reserve_local("FRACGPU_RESERVE_LOCAL", "it counts as not set");

// Whether there is anything to be done for launches in the context before they come.
bool prepares_launches(const Process& process, const Context& context);

// The program has got a function whose threads have this many bytes of local memory, and may launch
// it in the current context; its code may just have been loaded. Takes the memory now, or else
// waits for a launch that takes it. kOutOfMemory where it does not fit under the cap.
CUresult prepare_launches(Process& process, const char* api, size_t bytes);

// Charges what a launch in the context has taken since the last look, if it is the current one.
[[gnu::cold]] void see_launches(Process& process, const Context& context);

}  // namespace fracgpu::cuda
