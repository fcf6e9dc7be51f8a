// Waiting for what was freed of pools in stream order.
#pragma once

#include "hooks/cuda/streams.h"

namespace fracgpu::cuda {

// Whether the driver has done all that was freed from the pool in stream order and is still known.
// Waits for it.
[[gnu::cold]] bool frees_are_done(Process& process, uint64_t pool);

// Waits for everything that was freed from the pool in stream order and that nothing was said of
// since, the call's own stream last: the driver, too, does so before it is out of memory. False
// where there is nothing to wait for.
[[gnu::cold]] bool wait_for_frees(Process& process, uint64_t pool, const Stream& own);

}  // namespace fracgpu::cuda
