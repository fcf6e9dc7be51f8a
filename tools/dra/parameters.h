// The opaque configuration of a claim or its DeviceClass: what it may configure in addition to the
// amount.
//
//   apiVersion: fracgpu.dev/v1
//   kind: ClaimParameters
//   log: info       FRACGPU_LOG of the claim's containers
//   nvml: false     FRACGPU_NVML=off
#pragma once

#include <map>
#include <string>

#include "tools/cli/json.h"

namespace fracgpu::tools::dra {

// The environment that the containers of an allocated claim get from it. The claim's values take
// precedence over its class's. Throws std::runtime_error with one line that lists the accepted
// values.
std::map<std::string, std::string> environment_of(const Json& allocation);

}  // namespace fracgpu::tools::dra
