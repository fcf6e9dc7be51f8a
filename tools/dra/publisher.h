// Keeps the node's ResourceSlices in line with its devices.
#pragma once

#include <string>
#include <vector>

#include "tools/dra/api_client.h"
#include "tools/dra/slices.h"

namespace fracgpu::tools::dra {

class Publisher {
 public:
  Publisher(const ApiClient& api, std::string node) : api_(api), node_(std::move(node)) {}

  // Reads the published slices and changes those that differ. Returns whether it changed any.
  // Simultaneous changes by others are noticed the next time. Throws ApiError.
  bool publish(const std::vector<Device>& devices) const;

 private:
  const ApiClient& api_;
  const std::string node_;
};

}  // namespace fracgpu::tools::dra
