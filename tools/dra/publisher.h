// Keeps the node's ResourceSlices as the devices are.
#pragma once

#include <string>
#include <vector>

#include "tools/dra/api_client.h"
#include "tools/dra/slices.h"

namespace fracgpu::tools::dra {

class Publisher {
 public:
  Publisher(const ApiClient& api, std::string node) : api_(api), node_(std::move(node)) {}

  // Looks at what is published and changes what differs; returns whether anything did. What others
  // change at the same moment is seen the next time. Throws ApiError.
  bool publish(const std::vector<Device>& devices) const;

 private:
  const ApiClient& api_;
  const std::string node_;
};

}  // namespace fracgpu::tools::dra
