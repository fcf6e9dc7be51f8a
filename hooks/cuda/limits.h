// The local memory of kernels. A launch makes the driver allocate it.
#pragma once

#include "hooks/cuda/hook.h"
#include "shim/config/switch.h"

namespace fracgpu::cuda {

// Whether local memory is reserved before a launch.
inline constinit Switch reserve_local("FRACGPU_RESERVE_LOCAL", "it counts as not set");

// Whether launches in the context need preparation before they happen.
bool prepares_launches(const Process& process, const Context& context);

// Prepares for launches in the current context, after the program got a function whose threads use
// `bytes` of local memory. Its code may just have been loaded. Either reserves the memory now or
// waits for a launch that takes it. Returns kOutOfMemory if the memory does not fit under the cap.
CUresult prepare_launches(Process& process, const char* api, size_t bytes);

// Charges the local memory that launches in the context took since the last check. Does nothing
// unless the context is current.
[[gnu::cold]] void see_launches(Process& process, const Context& context);

}  // namespace fracgpu::cuda
