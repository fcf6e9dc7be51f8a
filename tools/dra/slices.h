// ResourceSlices, which announce this node's devices to the scheduler.
//
// All slices of a node are one pool. A reader of the pool waits until it has as many slices of the
// newest generation as they announce. So each change is a new generation of all slices.
#pragma once

#include <string>
#include <vector>

#include "tools/dra/device.h"

namespace fracgpu::tools::dra {

// The `spec` of each slice of the pool.
std::vector<Json> slices_of(const std::vector<Device>& devices, const std::string& node,
                            uint64_t generation);

// The changes that bring the pool to this state. Objects are complete. Each replacement carries the
// version that it replaces.
struct SliceChanges {
  std::vector<Json> create{}, replace{};
  std::vector<std::string> remove{};  // by name
  bool empty() const { return create.empty() && replace.empty() && remove.empty(); }
};

// `there` is the API server's list for this node and driver. `owner` is the reference to the node:
// when the node is removed, the slices are removed too.
SliceChanges changes_to(const std::vector<Json>& there, const std::vector<Device>& devices,
                        const std::string& node, const Json& owner);

}  // namespace fracgpu::tools::dra
