// See quantity.h. Uses only integers: rounding affects only the last byte.
#include "tools/dra/quantity.h"

#include <fmt/core.h>

namespace fracgpu::tools::dra {
namespace {

using uint128 = unsigned __int128;

constexpr std::string_view kBinary = "KMGTPE";
constexpr std::string_view kDecimal = "kMGTPE";
constexpr uint64_t kMost = INT64_MAX;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The unit's factor, or 0 if there is no such unit.
uint64_t factor_of(std::string_view unit) {
  if (unit.empty()) return 1;
  uint64_t factor = 1;
  if (unit.size() == 2 && unit[1] == 'i') {
    const size_t at = kBinary.find(unit[0]);
    return at == kBinary.npos ? 0 : uint64_t{1} << (10 * (at + 1));
  }
  if ((unit[0] == 'e' || unit[0] == 'E') && unit.size() >= 2 && unit.size() <= 3) {
    unsigned power = 0;
    for (const char c : unit.substr(1)) {
      if (!is_digit(c)) return 0;
      power = power * 10 + static_cast<unsigned>(c - '0');
    }
    if (power > 18) return 0;
    while (power-- > 0) factor *= 10;
    return factor;
  }
  const size_t at = unit.size() == 1 ? kDecimal.find(unit[0]) : kDecimal.npos;
  if (at == kDecimal.npos) return 0;
  for (size_t i = 0; i <= at; ++i) factor *= 1000;
  return factor;
}

}  // namespace

std::optional<uint64_t> bytes_of(std::string_view quantity) {
  if (quantity.starts_with('+')) quantity.remove_prefix(1);
  uint128 digits = 0, scale = 1;
  bool any = false, in_part = false;
  size_t at = 0;
  for (; at < quantity.size(); ++at) {
    const char c = quantity[at];
    if (c == '.' && !in_part) {
      in_part = true;
      continue;
    }
    if (!is_digit(c)) break;
    any = true;
    if (in_part && scale > kMost / 10) continue;  // finer than a byte in every relevant unit
    digits = digits * 10 + static_cast<unsigned>(c - '0');
    if (in_part) scale *= 10;
    if (digits > uint128{kMost} * 10) return std::nullopt;
  }
  // Thousandths and less are also units.
  const std::string_view unit = quantity.substr(at);
  if (unit == "m") scale *= 1000;
  if (unit == "u") scale *= 1000000;
  if (unit == "n") scale *= 1000000000;
  const uint64_t factor = unit == "m" || unit == "u" || unit == "n" ? 1 : factor_of(unit);
  if (!any || factor == 0) return std::nullopt;
  const uint128 bytes = digits * factor / scale;
  if (bytes > kMost) return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

std::string quantity_of(uint64_t bytes) {
  size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit < kBinary.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{}", bytes) : fmt::format("{}{}i", bytes, kBinary[unit - 1]);
}

}  // namespace fracgpu::tools::dra
