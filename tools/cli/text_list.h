// Splits texts.
#pragma once

#include <string_view>
#include <vector>

namespace fracgpu::tools {

inline std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// The items between the separators, without surrounding blanks. Includes empty items.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> items;
  for (;;) {
    const size_t at = text.find(separator);
    items.push_back(trim(text.substr(0, at)));
    if (at == text.npos) return items;
    text.remove_prefix(at + 1);
  }
}

}  // namespace fracgpu::tools
