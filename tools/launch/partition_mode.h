// A launch's --partition: only GPUs of boards in this mode.
#pragma once

#include <string>
#include <vector>

#include "tools/machine/gpus.h"

namespace fracgpu::tools {

inline constexpr const char* kPartitionHelp =
    "Only GPUs of AMD boards in this compute mode: spx, dpx, tpx, qpx or cpx";

// The members of `usable`, which are places in `gpus`, that are in the mode; all of them if no mode
// is given. Throws std::runtime_error with one line if the word is not a mode, or if no GPU is in
// it.
std::vector<size_t> in_partition_mode(const std::string& mode, const std::vector<Gpu>& gpus,
                                      const std::vector<size_t>& usable);

}  // namespace fracgpu::tools
