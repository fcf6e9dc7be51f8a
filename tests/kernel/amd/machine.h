// A machine of its own for processes: a mount namespace whose /sys and /dev are a simulated node's,
// with AMD's kernel driver in them.
#pragma once

#include <cstdint>
#include <string>

#include "sim/node/node_layout.h"

namespace kfd {

// Puts this process into a new mount namespace, as root or in a user namespace, with empty /sys and
// /dev of its own beside what programs need of the real ones. False and a line where that may not
// be.
bool make_namespace(std::string* why);
// Puts this process into the one that `pid` made.
bool join_namespace(int pid, std::string* why);

// Fills /sys and /dev with the node's files, and makes the books.
bool make_machine(const sim::NodeFile& node, std::string* why);

}  // namespace kfd
