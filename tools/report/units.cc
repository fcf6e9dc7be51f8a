// See units.h.
#include "tools/report/units.h"

#include <fmt/core.h>

namespace fracgpu::tools::report {

std::string duration(uint64_t ns) {
  const double seconds = static_cast<double>(ns) / 1e9;
  if (ns == 0) return "0 s";
  if (ns < 1'000'000) return fmt::format("{:.3g} us", seconds * 1e6);
  if (ns < 1'000'000'000) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (ns < 100'000'000'000) return fmt::format("{:.3f} s", seconds);
  const uint64_t whole = ns / 1'000'000'000;
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
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
