// Chooses the GPUs of a launch among the free ones. This is pure arithmetic on eighths of GPUs,
// which are identified by their rows in the claim table, and on places for MIG instances.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "fracgpu/claim_table_layout.h"
#include "tools/claims/mig_placement.h"

namespace fracgpu::tools {

using Shares = std::array<uint8_t, claim_table_layout::kMaxGpus>;

// A launch's request: `each` eighths on `count` of the `allowed` GPUs or, with `count` 0, exactly
// `exact`. Alternatively an instance on one of the `mig_allowed` GPUs.
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
  SliceMask fixed = 0;  // occupied by instances without a known launch: they do not drain
};

struct Free {
  Shares eighths{};
  std::vector<DividedGpu> divided{};
};

// A launch's result: eighths, or an instance.
struct InstancePlace {
  uint32_t row = 0;  // of the GPU
  MigProfile profile{};
  uint8_t start = 0;
};
struct Placed {
  Shares eighths{};
  std::optional<InstancePlace> instance{};
};

// The eighths for the request, on the fullest GPUs that still have room. Among equal GPUs, the
// first wins.
std::optional<Shares> place(const PlacementRequest& request, const Shares& free);

// The GPUs that a waiting request should get as soon as they drain: the emptiest ones that it can
// use. A bit for each.
uint64_t earmark(const PlacementRequest& request, const Shares& free);

// Serves the requests in this order. A request that does not fit keeps its earmarked GPUs from
// later requests, which may use the others. So small requests fill what is left and never starve a
// big one. The earmarked GPUs only drain meanwhile. The request moves to others only if those are
// even emptier. A request that may have an instance instead takes eighths if there are any, and
// waits for eighths.
std::vector<std::optional<Placed>> serve(const std::vector<PlacementRequest>& requests, Free free);

}  // namespace fracgpu::tools
