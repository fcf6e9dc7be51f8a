// Suggests the word that a misspelled word may mean.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fracgpu::tools {

// The word with the fewest changes from `word` (a letter missing, added, different, or swapped with
// its neighbour); empty if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& words);

}  // namespace fracgpu::tools
