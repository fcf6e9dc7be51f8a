// The simulated machine: a mount namespace whose /sys and /dev show AMD's kernel driver and a
// node's cards.
#pragma once

#include <cstdint>
#include <string>

#include "sim/node/node_layout.h"

namespace kfd {

// Moves this process into a new mount namespace, inside a user namespace unless it is root. /sys
// and /dev contain only what programs need of the real ones. Returns false and a reason on failure.
bool make_namespace(std::string* why);
// Moves this process into the namespace that process `pid` made.
bool join_namespace(int pid, std::string* why);

// Writes the node's files into /sys and /dev, and creates the accounting.
bool make_machine(const sim::NodeFile& node, std::string* why);

}  // namespace kfd
