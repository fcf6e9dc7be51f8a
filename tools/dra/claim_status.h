// Reports on a ResourceClaim's devices in its own status (KEP-4817) and by an event, for `kubectl
// describe`: that they are capped, and at what amount, or why they could not be prepared.
#pragma once

#include <optional>
#include <string>

#include "tools/cli/json.h"

namespace fracgpu::tools::dra {

// The object to apply to an allocated claim's status: its devices of this driver are ready, or not
// ready because of `fault`. None if the status already says so, or if the claim has no such device.
std::optional<Json> status_of(const Json& object, const std::string& fault);

// The event for the contents of `status`, which belongs to this claim. The same event on the same
// node has the same name, so the server stores it only once.
Json event_of(const Json& object, const Json& status, const std::string& node);

}  // namespace fracgpu::tools::dra
