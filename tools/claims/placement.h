// Where a launch goes: which GPUs, given what is free. Pure arithmetic on eighths of GPUs, which
// are known here by their rows in the claim table, and on places for MIG instances.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "fracgpu/claim_table_layout.h"
#include "tools/claims/mig_placement.h"

namespace fracgpu::tools {

using Shares = std::array<uint8_t, claim_table_layout::kMaxGpus>;

// What a launch wants: `each` eighths on `count` of the `allowed` GPUs, or, with `count` 0, exactly
// `exact`; or else an instance on one of the `mig_allowed` GPUs.
struct PlacementRequest {
  uint64_t allowed = 0;
  uint32_t each = 0;
  uint32_t count = 0;
  Shares exact{};
  MigWish mig{};
  uint64_t mig_allowed = 0;
};

// A GPU in MIG mode.
struct DividedGpu {
  uint32_t row = 0;
  MigGpu gpu{};
  SliceMask fixed = 0;  // occupied by instances of which no launch is known: they do not drain
};

struct Free {
  Shares eighths{};
  std::vector<DividedGpu> divided{};
};

// What a launch gets: eighths, or an instance.
struct InstancePlace {
  uint32_t row = 0;  // of the GPU
  MigProfile profile{};
  uint8_t start = 0;
};
struct Placed {
  Shares eighths{};
  std::optional<InstancePlace> instance{};
};

// The eighths for the request on the fullest GPUs that still have room for it; of equals the first.
std::optional<Shares> place(const PlacementRequest& request, const Shares& free);

// The GPUs that who must wait should have as soon as they drain: those it can use that are the
// emptiest. A bit for each.
uint64_t earmark(const PlacementRequest& request, const Shares& free);

// Serves the requests in this order. One that does not fit keeps its earmarked GPUs from those
// behind it, which may have the others: so the small ones fill what is left and never starve a big
// one. Its GPUs only drain meanwhile, and it moves to others only when they are emptier still. One
// that may have an instance instead takes eighths where there are some, and waits for these.
std::vector<std::optional<Placed>> serve(const std::vector<PlacementRequest>& requests, Free free);

}  // namespace fracgpu::tools
