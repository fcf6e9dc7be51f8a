// Checks wishes; see wish.h.
//
// AMD defines which modes go together: every compute mode goes with NPS1. Of the others, DPX goes
// with NPS2; TPX, QPX and CPX go with NPS4, and on chips without NPS4 with NPS2 (AMD SMI's
// documentation, "GPU partitioning"; the kernel's __aqua_vanjaram_get_px_mode_info). The driver has
// the last word.
#include "tools/partition/wish.h"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>

namespace fracgpu::tools {
namespace {

using Modes = std::vector<std::string>;

bool contains(const Modes& modes, const std::string& mode) {
  return std::ranges::find(modes, mode) != modes.end();
}

Modes memory_modes_with(const PartitionModes& modes, const std::string& compute) {
  const std::string finest = contains(modes.all_memory, "NPS4") ? "NPS4" : "NPS2";
  Modes found;
  for (const std::string& memory : modes.all_memory) {
    const bool goes = memory == "NPS1" || (compute == "DPX" && memory == "NPS2") ||
                      (compute != "SPX" && compute != "DPX" && memory == finest);
    if (goes) found.push_back(memory);
  }
  return found;
}

std::string capitals(std::string text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return text;
}

std::string checked(const Board& board, const char* kind, const std::string& text,
                    const Modes& modes) {
  std::string mode = capitals(text);
  if (mode.empty() || contains(modes, mode)) return mode;
  throw std::runtime_error(fmt::format("{} has no {} mode {}; it has {}", board.label(), kind,
                                       fracgpu::quoted(text).view(), any_of_text(modes)));
}

}  // namespace

std::string any_of_text(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  }
  return text;
}

std::string compute_then(const Board& board, const PartitionWish& wish) {
  if (!wish.compute.empty()) return wish.compute;
  if (!wish.reloads(board)) return board.modes.compute;
  // As __aqua_vanjaram_get_auto_mode chooses; no chip with NPS8 is known.
  return wish.memory == "NPS1" ? "SPX" : wish.memory == "NPS2" ? "DPX" : "CPX";
}

PartitionWish wish_for(const Board& board, const std::string& compute, const std::string& memory) {
  const PartitionModes& modes = board.modes;
  if (modes.compute.empty()) {
    throw std::runtime_error(
        fmt::format("{} cannot be divided, or its kernel driver does not tell: there is no "
                    "current_compute_partition for it in /sys/class/drm; MI300 and later have it",
                    board.label()));
  }
  PartitionWish wish{.compute = checked(board, "compute", compute, modes.all_compute),
                     .memory = checked(board, "memory", memory, modes.all_memory)};
  if (wish.compute.empty()) return wish;
  const std::string with = wish.memory.empty() ? modes.memory : wish.memory;
  if (const Modes good = memory_modes_with(modes, wish.compute); !contains(good, with)) {
    throw std::runtime_error(
        fmt::format("{} does not go with {}{}; it goes with {}: add --memory", wish.compute, with,
                    wish.memory.empty() ? ", the memory mode of now" : "", any_of_text(good)));
  }
  return wish;
}

}  // namespace fracgpu::tools
