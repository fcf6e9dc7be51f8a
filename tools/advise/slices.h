// The available slices of a GPU: fractions that `fracgpu run` claims, MIG profiles, AMD's
// partitions, and images tagged by memory size.
#pragma once

#include <cstdint>
#include <string>

#include "tools/machine/gpus.h"

namespace fracgpu::tools {

// The smallest slice of each kind that holds the given bytes. Empty or 0 if none does, or if the
// GPU has no such slices.
struct Slices {
  int eighths = 0;          // of the GPU
  std::string mig_profile;  // "2g.10gb"
  uint64_t mig_bytes = 0;
  std::string partition;  // AMD's compute mode, "cpx"
  uint64_t partition_bytes = 0;
  // Whether a GPU of the machine is in the mode that makes such slices.
  bool has_mig_mode = false, has_partition_mode = false;
  int image_gb = 0;  // of the tag, "…-8gb"
};

Slices slices_for(uint64_t bytes, const Gpu& gpu, const std::vector<Gpu>& all);

}  // namespace fracgpu::tools
