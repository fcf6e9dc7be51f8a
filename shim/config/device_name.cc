// Parses and compares names of devices; see device_name.h.
#include "shim/config/device_name.h"

#include <ctype.h>
#include <strings.h>

#include <algorithm>

namespace fracgpu {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

// Takes a number of at most `digits` digits from the front of the text.
bool take_number(std::string_view& text, int base, size_t digits, uint32_t& value) {
  size_t i = 0;
  value = 0;
  for (; i < text.size() && (base == 16 ? is_hex(text[i]) : is_digit(text[i])); ++i) {
    const char c = text[i];
    const int digit = is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10;
    value = value * static_cast<uint32_t>(base) + static_cast<uint32_t>(digit);
  }
  text.remove_prefix(i);
  return i > 0 && i <= digits;
}

bool take(std::string_view& text, char expected) {
  if (text.empty() || text[0] != expected) return false;
  text.remove_prefix(1);
  return true;
}

bool is_uuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : !is_hex(text[i])) return false;
  }
  return true;
}

// The form that rocminfo prints: the unique_id of KFD's properties.
bool is_amd_uuid(std::string_view text) {
  return text.size() == 16 && std::all_of(text.begin(), text.end(), is_hex);
}

// Drivers write the prefix in capitals and the digits in lower case.
Text<64> normalized(std::string_view name) {
  char text[64];
  const size_t size = std::min(name.size(), sizeof text);
  for (size_t i = 0; i < size; ++i)
    text[i] = static_cast<char>(i < 4 ? toupper(name[i]) : tolower(name[i]));
  return Text<64>(std::string_view(text, size));
}

bool is_key(std::string_view text) {
  const std::string_view prefix = text.substr(0, 4);
  if (equal_ignoring_case(prefix, "GPU-") || equal_ignoring_case(prefix, "MIG-")) {
    return is_uuid(text.substr(4)) ||
           (equal_ignoring_case(prefix, "GPU-") && is_amd_uuid(text.substr(4)));
  }
  uint32_t gpu_id = 0;
  std::string_view rest = text.substr(prefix.size());
  return equal_ignoring_case(prefix, "AMD-") && rest[0] != '0' &&
         take_number(rest, 10, 9, gpu_id) && rest.empty();
}

}  // namespace

bool BusId::parse(std::string_view text) {
  *this = BusId{};
  uint32_t first = 0, number = 0;
  if (!take_number(text, 16, 8, first) || !take(text, ':')) return false;
  if (!take_number(text, 16, 4, number)) return false;
  if (take(text, ':')) {
    domain = first;
    bus = number;
    if (!take_number(text, 16, 2, device)) return false;
  } else {
    bus = first;
    device = number;
  }
  if (!take(text, '.') || !take_number(text, 16, 1, function)) return false;
  if (bus > 0xff || device > 0x1f || function > 7) return false;
  if (!take(text, '/')) return text.empty();
  uint32_t given = 0;
  if (!take_number(text, 10, 2, given)) return false;
  partition = static_cast<int>(given);
  return text.empty();
}

bool BusId::selects(const BusId& there) const {
  if (domain != there.domain || bus != there.bus || device != there.device) return false;
  if (partition < 0)
    return function == there.function || (there.function_is_partition && function == 0);
  const auto wanted = static_cast<uint32_t>(partition);
  if (there.partition > 0) return partition == there.partition;
  return there.function == wanted;
}

bool Selector::parse(std::string_view name) {
  text.assign(name);
  uint32_t number = 0;
  std::string_view rest = name;
  if (take_number(rest, 10, 4, number) && rest.empty() && number < 1024) {
    kind = Kind::index;
    index = static_cast<int>(number);
  } else if (name.size() > 4 && is_key(name)) {
    kind = Kind::key;
    key = normalized(name);
  } else if (bus_id.parse(name)) {
    kind = Kind::bus_id;
  } else {
    return false;
  }
  return true;
}

bool Selector::selects(const DeviceName& device) const {
  switch (kind) {
    case Kind::any:
      return true;
    case Kind::index:
      return index == device.index;
    case Kind::key:
      return equal_ignoring_case(key.view(), device.key) ||
             equal_ignoring_case(key.view(), device.whole.view());
    case Kind::bus_id:
      return device.has_bus_id && bus_id.selects(device.bus_id);
  }
  return false;
}

bool Selector::same_as(const Selector& other) const {
  if (kind != other.kind || index != other.index) return false;
  if (kind != Kind::bus_id) return equal_ignoring_case(key.view(), other.key.view());
  const BusId &a = bus_id, &b = other.bus_id;
  return a.domain == b.domain && a.bus == b.bus && a.device == b.device &&
         a.function == b.function && a.partition == b.partition;
}

}  // namespace fracgpu
