// What a board shall be, and whether it can be: the modes that its chip has, and that go together.
#pragma once

#include <string>

#include "tools/machine/amd_partitions.h"

namespace fracgpu::tools {

struct PartitionWish {
  std::string compute, memory;  // empty: as it comes

  bool reloads(const Board& board) const { return !memory.empty() && memory != board.modes.memory; }
  bool is_met_by(const Board& board) const {
    return (compute.empty() || compute == board.modes.compute) &&
           (memory.empty() || memory == board.modes.memory);
  }
};

// Of what was written, in capitals. Throws std::runtime_error with one line for what the board
// cannot be.
PartitionWish wish_for(const Board& board, const std::string& compute, const std::string& memory);

// The compute mode that the board will have: the one that is wanted, or the one that the driver
// takes with the memory mode.
std::string compute_then(const Board& board, const PartitionWish& wish);

// "SPX, DPX or CPX".
std::string any_of_text(const std::vector<std::string>& words);

}  // namespace fracgpu::tools
