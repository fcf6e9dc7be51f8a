// What a ResourceClaim's own status tells of its devices (KEP-4817), for `kubectl describe`: that
// they are capped, and at what, or why they could not be prepared.
#pragma once

#include <optional>
#include <string>

#include "tools/cli/json.h"

namespace fracgpu::tools::dra {

// The object to be applied to the status of an allocated claim: its devices of this driver are
// ready, or not because of `fault`. None where they say so already, or it has none.
std::optional<Json> status_of(const Json& object, const std::string& fault);

}  // namespace fracgpu::tools::dra
