// What somebody may have meant by a word that is none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fracgpu::tools {

// The word that is the least letters away from `word` (one is left out, added, another one, or
// changes places with its neighbour); empty where none of them is near.
std::string nearest(std::string_view word, const std::vector<std::string>& words);

}  // namespace fracgpu::tools
