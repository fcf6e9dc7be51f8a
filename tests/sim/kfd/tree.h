// The folder beside the node's file that holds what AMD's kernel driver shows in /sys. Only a node
// with AMD devices has one. It follows from the node's rows, so whoever finds it missing can make
// it.
#pragma once

#include <string>

#include "sim/node/node_layout.h"

namespace sim {

inline std::string kfd_tree_of(const std::string& node_path) {
  return node_path + ".sys";
}
// Below the tree: where things are made or unmade out of sight.
inline constexpr const char* kKfdWorkshop = "/new";
inline constexpr const char* kKfdProcesses = "/sys/devices/virtual/kfd/kfd/proc";

// True when the tree is there and is this node's own.
bool make_kfd_tree(const std::string& node_path, const NodeFile& file);
void remove_kfd_tree(const std::string& node_path);

}  // namespace sim
