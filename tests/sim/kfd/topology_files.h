// The files of the AMD kernel driver's sysfs that never change on a node: name below the root of
// the file system, and text. Names and formats are the kernel's, identity and sizes are the
// node's, clocks and firmware versions are merely of the right order.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sim/node/node_layout.h"

namespace sim {

// An empty text at a name that ends in '/' stands for an empty folder.
std::vector<std::pair<std::string, std::string>> kfd_files(const NodeFile& file);

// The minor number of a device's render node.
uint32_t render_minor(const NodeFile& file, int dev);

}  // namespace sim
