// Where a launch goes: which GPUs, given what is free. Pure arithmetic on eighths of GPUs, which
// are known here by their rows in the claim table.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "fracgpu/claim_table_layout.h"

namespace fracgpu::tools {

using Shares = std::array<uint8_t, claim_table_layout::kMaxGpus>;

// What a launch wants: `each` eighths on `count` of the `allowed` GPUs, or, with `count` 0, exactly
// `exact`.
struct PlacementRequest {
  uint64_t allowed = 0;
  uint32_t each = 0;
  uint32_t count = 0;
  Shares exact{};
};

// The eighths for the request on the fullest GPUs that still have room for it; of equals the first.
std::optional<Shares> place(const PlacementRequest& request, const Shares& free);

// The GPUs that who must wait should have as soon as they drain: those it can use that are the
// emptiest. A bit for each.
uint64_t earmark(const PlacementRequest& request, const Shares& free);

// Serves the requests in this order. One that does not fit keeps its earmarked GPUs from those
// behind it, which may have the others: so the small ones fill what is left and never starve a big
// one. Its GPUs only drain meanwhile, and it moves to others only when they are emptier still.
std::vector<std::optional<Shares>> serve(const std::vector<PlacementRequest>& requests,
                                         Shares free);

}  // namespace fracgpu::tools
