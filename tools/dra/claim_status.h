// What a ResourceClaim tells of its devices, by its own status (KEP-4817) and by an event, for
// `kubectl describe`: that they are capped, and at what, or why they could not be prepared.
#pragma once

#include <optional>
#include <string>

#include "tools/cli/json.h"

namespace fracgpu::tools::dra {

// The object to be applied to the status of an allocated claim: its devices of this driver are
// ready, or not because of `fault`. None where they say so already, or it has none.
std::optional<Json> status_of(const Json& object, const std::string& fault);

// The event that tells what `status`, which is for this claim, says of it. The same on the same
// node has the same name, so that the server has it once while it keeps it.
Json event_of(const Json& object, const Json& status, const std::string& node);

}  // namespace fracgpu::tools::dra
