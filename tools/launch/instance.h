// The MIG instance of a launch, from the claim table's promise to its end. What is made is on
// record there before it is made, so that whoever is killed at whatever step leaves nothing for
// ever: the next launch of root's, or `fracgpu gc`, destroys what has no launch any more.
#pragma once

#include <optional>
#include <vector>

#include "tools/claims/claim_table.h"
#include "tools/machine/gpus.h"

namespace fracgpu::tools {

// Makes the instance that the claim was promised, or takes that which another launch of its tenant
// has made, and returns it as a device. Where somebody else has taken its place it waits for
// another one for some seconds, which `shares` then tells; none where that is a share of a GPU
// after all. Throws RunError. The caller leaves the claim then.
std::optional<Gpu> obtain_instance(ClaimTable& table, const Claim& claim,
                                   std::vector<Share>& shares);

// Destroys the instances of launches that have ended, unless somebody else does. Those that cannot
// be are complained of, after ten seconds for each, or left without a word: a launch that begins
// shall not wait for others'. Does nothing for users who may not.
enum class Stuck { told, left };
struct Destroyed {
  int destroyed = 0, left = 0;
};
Destroyed destroy_orphans(ClaimTable& table, Stuck stuck = Stuck::told);

}  // namespace fracgpu::tools
