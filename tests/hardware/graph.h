// Graphs that allocate, for the probes.
#pragma once

#include "tests/hardware/cuda.h"

namespace hardware {

// A graph of `links` allocations one after the other, each freed before the next or never. Null
// when it is refused for lack of memory; throws Unmeasured for any other reason.
CUgraphExec allocating_graph(uint64_t bytes, int links, bool freed);

}  // namespace hardware
