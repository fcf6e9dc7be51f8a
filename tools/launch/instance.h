// The MIG instance of a launch, from the claim table's promise to its end. The table records an
// instance before it is made. So a launch that is killed at any step leaves no instance for ever:
// root's next launch, or `fracgpu gc`, destroys instances without a launch.
#pragma once

#include <optional>
#include <vector>

#include "tools/claims/claim_table.h"
#include "tools/machine/gpus.h"

namespace fracgpu::tools {

// Makes the instance that the claim was promised, or takes the one that another launch of its
// tenant has made. Returns it as a device. If another program has taken its place, waits some
// seconds for another place, which `shares` then shows. Returns none if that place is a share of a
// GPU. Throws RunError; the caller then leaves the claim.
std::optional<Gpu> obtain_instance(ClaimTable& table, const Claim& claim,
                                   std::vector<Share>& shares);

// Destroys the instances of ended launches, unless another process does. With `Stuck::told`, waits
// up to ten seconds for each instance that cannot be destroyed and reports it. With `Stuck::left`,
// skips it silently: a starting launch must not wait for others. Does nothing without root.
enum class Stuck { told, left };
struct Destroyed {
  int destroyed = 0, left = 0;
};
Destroyed destroy_orphans(ClaimTable& table, Stuck stuck = Stuck::told);

}  // namespace fracgpu::tools
