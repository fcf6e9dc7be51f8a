// Waits for stream-ordered frees to a pool.
#pragma once

#include "hooks/cuda/streams.h"

namespace fracgpu::cuda {

// Waits for the known stream-ordered frees to the pool. Returns whether the driver has done all of
// them.
[[gnu::cold]] bool frees_are_done(Process& process, uint64_t pool);

// Waits for all stream-ordered frees to the pool that are not known to be done. The call's own
// stream comes last. The driver waits in the same way before it runs out of memory. False if there
// is nothing to wait for.
[[gnu::cold]] bool wait_for_frees(Process& process, uint64_t pool, const Stream& own);

}  // namespace fracgpu::cuda
