// The modes that a board should have, and whether its chip has them and they go together.
#pragma once

#include <string>

#include "tools/machine/amd_partitions.h"

namespace fracgpu::tools {

struct PartitionWish {
  std::string compute, memory;  // empty: not asked for

  bool reloads(const Board& board) const { return !memory.empty() && memory != board.modes.memory; }
  bool is_met_by(const Board& board) const {
    return (compute.empty() || compute == board.modes.compute) &&
           (memory.empty() || memory == board.modes.memory);
  }
};

// The wish for these modes, put into capitals. Throws std::runtime_error with one line if the board
// cannot have them.
PartitionWish wish_for(const Board& board, const std::string& compute, const std::string& memory);

// The compute mode that the board will have: the wanted one, or the one that the driver takes with
// a new memory mode, or else the present one.
std::string compute_then(const Board& board, const PartitionWish& wish);

// "SPX, DPX or CPX".
std::string any_of_text(const std::vector<std::string>& words);

}  // namespace fracgpu::tools
