// ResourceSlices: how the scheduler learns of this node's devices.
//
// All slices of a node are one pool. Whoever reads it waits until as many slices of the newest
// generation are there as they say, so a change is a new generation of all of them.
#pragma once

#include <string>
#include <vector>

#include "tools/dra/device.h"

namespace fracgpu::tools::dra {

// The `spec` of each slice of the pool.
std::vector<Json> slices_of(const std::vector<Device>& devices, const std::string& node,
                            uint64_t generation);

// What makes the pool say that. Objects are whole, those to be replaced with the version that they
// replace.
struct SliceChanges {
  std::vector<Json> create{}, replace{};
  std::vector<std::string> remove{};  // by name
  bool empty() const { return create.empty() && replace.empty() && remove.empty(); }
};

// `there` is what the API server lists of this node and driver, `owner` the reference to the node,
// with which the slices go.
SliceChanges changes_to(const std::vector<Json>& there, const std::vector<Device>& devices,
                        const std::string& node, const Json& owner);

}  // namespace fracgpu::tools::dra
