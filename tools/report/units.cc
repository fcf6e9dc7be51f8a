// See units.h.
#include "tools/report/units.h"

#include <fmt/core.h>
#include <stdlib.h>

#include <algorithm>

namespace fracgpu::tools::report {

std::string duration(uint64_t ns) {
  const double seconds = static_cast<double>(ns) / 1e9;
  if (ns == 0) return "0 s";
  // Three digits below the next unit, after rounding.
  if (ns < 999'500) return fmt::format("{:.3g} us", seconds * 1e6);
  if (ns < 999'500'000) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (ns < 100'000'000'000) return fmt::format("{:.3f} s", seconds);
  const uint64_t whole = ns / 1'000'000'000;
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::optional<uint64_t> parse_duration(const std::string& text) {
  constexpr size_t kMostDigits = 12;
  const size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string number = text.substr(0, end), unit = text.substr(end);
  const double scale = unit == "ms"  ? 1e6
                       : unit == "s" ? 1e9
                       : unit == "m" ? 60e9
                       : unit == "h" ? 3600e9
                                     : 0;
  const bool is_number = !number.empty() && number.size() <= kMostDigits && number[0] != '.' &&
                         number.back() != '.' && std::count(number.begin(), number.end(), '.') <= 1;
  if (scale == 0 || !is_number) return {};
  const double ns = strtod(number.c_str(), nullptr) * scale;
  if (ns >= static_cast<double>(UINT64_MAX)) return {};
  return static_cast<uint64_t>(ns);
}

std::string count(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

std::string count(uint64_t number, const char* what) {
  return fmt::format("{} {}{}", count(number), what, number == 1 ? "" : "s");
}

}  // namespace fracgpu::tools::report
