// --partition of a launch: GPUs of boards in this mode alone.
#pragma once

#include <string>
#include <vector>

#include "tools/machine/gpus.h"

namespace fracgpu::tools {

inline constexpr const char* kPartitionHelp =
    "Only GPUs of AMD boards in this compute mode: spx, dpx, tpx, qpx or cpx";

// Those of `usable`, places in `gpus`, that are in the mode; all where none is named. Throws
// std::runtime_error with one line for a word that is no mode, and where no GPU is in it.
std::vector<size_t> in_partition_mode(const std::string& mode, const std::vector<Gpu>& gpus,
                                      const std::vector<size_t>& usable);

}  // namespace fracgpu::tools
