// Parses the limit grammar of limits.h without allocating and without locale.
//
// Numbers are read as digits with an optional decimal part and kept as scaled integers, so that
// "0.1" is exactly one tenth and nothing depends on rounding modes of the host process.
#include "shim/config/limits.h"

#include <algorithm>
#include <cstddef>

#include "fracgpu/ledger_layout.h"

namespace fracgpu {
namespace {

constexpr std::string_view kAccepted =
    "accepted: 8GiB, 8gb, 8Gi, 512MiB, 50%, 0.5, per device 0=8GiB,1=25%, GPU-<uuid>=8GiB, "
    "MIG-<uuid>=8GiB, AMD-<gpu_id>=8GiB or 0000:0c:00.0=8GiB";
constexpr uint64_t kBillion = 1000000000;

constexpr char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

// A decimal number: `whole` and `billionths` of one. Removes it from the front of `text`.
bool take_number(std::string_view& text, uint64_t& whole, uint64_t& billionths) {
  size_t i = 0;
  whole = 0;
  for (; i < text.size() && is_digit(text[i]); ++i) {
    if (whole > UINT64_MAX / 100) return false;
    whole = whole * 10 + static_cast<uint64_t>(text[i] - '0');
  }
  const size_t whole_digits = i;
  billionths = 0;
  size_t fraction_digits = 0;
  if (i < text.size() && text[i] == '.') {
    uint64_t scale = kBillion;
    for (++i; i < text.size() && is_digit(text[i]); ++i, ++fraction_digits) {
      scale /= 10;
      if (scale == 0 && text[i] != '0') return false;  // finer than we can keep
      billionths += scale * static_cast<uint64_t>(text[i] - '0');
    }
  }
  text.remove_prefix(i);
  return whole_digits > 0 || fraction_digits > 0;
}

// The power of two of a unit's name, or -1. GB and GiB are the same here, as in the image tags, and
// so is Kubernetes' Gi.
int shift_of(std::string_view unit) {
  if (equal_ignoring_case(unit, "b")) return 0;
  constexpr std::string_view kLetters = "kmgt";
  const size_t at = unit.empty() ? kLetters.npos : kLetters.find(lower(unit[0]));
  if (at == kLetters.npos) return -1;
  const std::string_view rest = unit.substr(1);
  if (!rest.empty() && !equal_ignoring_case(rest, "b") && !equal_ignoring_case(rest, "ib") &&
      !equal_ignoring_case(rest, "i")) {
    return -1;
  }
  return static_cast<int>(10 * (at + 1));
}

using uint128 = unsigned __int128;

bool parse_scaled(std::string_view text, Amount& amount) {
  uint64_t whole = 0, part = 0;
  const bool has_point = text.find('.') != text.npos;
  if (!take_number(text, whole, part)) return false;
  const std::string_view unit = trim(text);
  if (unit == "%") {
    if (whole > 100 || (whole == 100 && part > 0)) return false;
    amount.billionths = whole * (kBillion / 100) + part / 100;
    return amount.billionths > 0;
  }
  if (unit.empty()) {
    if (!has_point || whole > 1 || (whole == 1 && part > 0)) return false;
    amount.billionths = whole * kBillion + part;
    return amount.billionths > 0;
  }
  const int shift = shift_of(unit);
  if (shift < 0) return false;
  const uint128 scaled = (static_cast<uint128>(whole) * kBillion + part) << shift;
  const uint128 bytes = scaled / kBillion;
  if (bytes > INT64_MAX) return false;
  amount.bytes = static_cast<uint64_t>(bytes);
  return amount.bytes >= layout::kUnit;
}

}  // namespace

uint64_t Amount::of(uint64_t physical) const {
  uint64_t result = bytes;
  if (billionths != 0) {
    result = static_cast<uint64_t>(static_cast<uint128>(physical) * billionths / kBillion);
  }
  if (result > physical) result = physical;
  if (result < layout::kUnit) result = layout::kUnit;  // a cap of 0 would mean "no device"
  return result / layout::kUnit * layout::kUnit;
}

bool parse_amount(std::string_view text, Amount& amount, Message& error) {
  Amount parsed;
  if (!parse_scaled(trim(text), parsed)) {
    error.format("memory limit {} is not understood; {}", quoted(text).view(), kAccepted);
    return false;
  }
  amount = parsed;
  return true;
}

bool Limits::parse_item(std::string_view text, Message& error) {
  Item item;
  const size_t equals = text.find('=');
  if (equals != text.npos) {
    const std::string_view selector = trim(text.substr(0, equals));
    text = text.substr(equals + 1);
    if (!item.selector.parse(selector)) {
      error.format(
          "memory limit names device {}, which is no index, GPU-<uuid>, MIG-<uuid>, AMD-<gpu_id> "
          "or bus id; {}",
          quoted(selector).view(), kAccepted);
      return false;
    }
  }
  if (!parse_amount(text, item.amount, error)) return false;
  for (size_t i = 0; i < count_; ++i) {
    if (item.selector.same_as(items_[i].selector)) {
      error.format("memory limit gives {} twice; {}",
                   item.selector.kind == Selector::Kind::any ? "the limit for all devices"
                                                             : item.selector.text.c_str(),
                   kAccepted);
      return false;
    }
  }
  if (count_ == kMaxItems) {
    error.format("memory limit has more than {} items", kMaxItems);
    return false;
  }
  items_.make(count_++, item);
  return true;
}

bool Limits::parse(std::string_view text, Message& error) {
  count_ = 0;
  for (size_t start = 0; start <= text.size();) {
    const size_t comma = text.find(',', start);
    const size_t end = comma == text.npos ? text.size() : comma;
    if (!parse_item(text.substr(start, end - start), error)) {
      count_ = 0;
      return false;
    }
    start = end + 1;
  }
  return true;
}

uint64_t Limits::cap_for(const DeviceName& device, uint64_t physical) const {
  uint64_t general = UINT64_MAX, specific = UINT64_MAX;
  for (size_t i = 0; i < count_; ++i) {
    const Item& item = items_[i];
    if (!item.selector.selects(device)) continue;
    uint64_t& cap = item.selector.kind == Selector::Kind::any ? general : specific;
    cap = std::min(cap, item.amount.of(physical));
  }
  return specific != UINT64_MAX ? specific : general;
}

bool Limits::selects_by(Selector::Kind kind) const {
  for (size_t i = 0; i < count_; ++i) {
    if (items_[i].selector.kind == kind) return true;
  }
  return false;
}

}  // namespace fracgpu
