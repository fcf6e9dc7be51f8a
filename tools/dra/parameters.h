// What a claim, or its DeviceClass, may say to this driver beside the amount: its opaque
// configuration.
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

// The environment that the containers of an allocated claim get by it. What the claim says comes
// before what its class says. Throws std::runtime_error with one line, which says what is accepted.
std::map<std::string, std::string> environment_of(const Json& allocation);

}  // namespace fracgpu::tools::dra
