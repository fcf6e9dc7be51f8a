// Reads the variables that cap a process; see environment_limits.h.
#include "shim/config/environment_limits.h"

#include <algorithm>

#include "shim/base/environment.h"

namespace fracgpu {
namespace {

// How another project writes a limit.
struct Dialect {
  std::string_view name;
  bool is_hami;  // else in MiB, for all devices alike
  bool is_amd;   // caps AMD's devices; else NVIDIA's
};

constexpr Dialect kOtherDialects[] = {
    {"CUDA_DEVICE_MEMORY_LIMIT", true, false},
    {"HIP_DEVICE_MEMORY_LIMIT", true, true},
    {"NVIDIA_GPU_MEMORY_LIMIT", false, false},
};
constexpr std::string_view kOversubscription = "CUDA_OVERSUBSCRIBE";
constexpr std::string_view kComputeLimit = "CUDA_DEVICE_SM_LIMIT";

// The index of the dialect that has a variable of this name, or the number of dialects.
size_t dialect_of(std::string_view name) {
  size_t i = 0;
  for (; i < std::size(kOtherDialects); ++i) {
    const Dialect& dialect = kOtherDialects[i];
    if (!name.starts_with(dialect.name)) continue;
    const std::string_view rest = name.substr(dialect.name.size());
    if (rest.empty() || (dialect.is_hami && rest.front() == '_')) break;
  }
  return i;
}

// A positive decimal number of units of 2^shift bytes.
bool parse_bytes(std::string_view text, int shift, uint64_t& bytes) {
  bytes = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    bytes = bytes * 10 + static_cast<uint64_t>(c - '0');
    if (bytes > uint64_t{INT64_MAX} >> shift) return false;
  }
  bytes <<= shift;
  return bytes > 0;
}

bool parse_hami(std::string_view text, uint64_t& bytes) {
  constexpr std::string_view kUnits = "kmg";
  const size_t unit = text.empty() ? kUnits.npos : kUnits.find(static_cast<char>(text.back() | 32));
  if (unit == kUnits.npos) return parse_bytes(text, 0, bytes);
  text.remove_suffix(1);
  return parse_bytes(text, static_cast<int>(10 * (unit + 1)), bytes);
}

}  // namespace

bool sets_limit(std::string_view name, const char* value) {
  // An empty FRACGPU_MEMORY_LIMIT is a mistake, and refused.
  return name == kLimitVariable || (*value != '\0' && dialect_of(name) < std::size(kOtherDialects));
}

bool limit_is_in_environment() {
  bool found = false;
  for_each_trusted_variable([&](std::string_view name, const char* value) {
    found = sets_limit(name, value);
    return !found;
  });
  return found;
}

bool EnvironmentLimits::read_other(size_t dialect, std::string_view name, std::string_view value,
                                   Message& error) {
  const std::string_view suffix = name.substr(kOtherDialects[dialect].name.size());
  ByIndex& limits = of_others_[dialect];
  uint64_t* limit = &limits.all;
  if (!suffix.empty()) {
    uint64_t index = 0;
    const std::string_view digits = suffix.substr(1);
    if (digits != "0" && (!parse_bytes(digits, 0, index) || index >= kMostIndices)) {
      error.format("{}: {} is no index of a GPU; accepted: 0 to {}", name, quoted(digits).view(),
                   kMostIndices - 1);
      return false;
    }
    limit = &limits.at[index];
  }
  const bool is_hami = kOtherDialects[dialect].is_hami;
  if (is_hami ? parse_hami(value, *limit) : parse_bytes(value, 20, *limit)) return true;
  error.format("{}: memory limit {} is not understood; accepted: {}; unset it to set no limit",
               name, quoted(value).view(),
               is_hami ? "3000m, 1g, 1048576k or bytes" : "whole MiB, such as 2048");
  return false;
}

bool EnvironmentLimits::read_variable(std::string_view name, std::string_view value,
                                      Message& error) {
  if (name == kLimitVariable) {
    Message why;
    if (ours_.parse(value, why)) return true;
    error.format("{}: {}", name, why.view());
    return false;
  }
  if (value.empty()) return true;
  if (name == kComputeLimit) unenforced_ = kComputeLimit;
  if (name == kOversubscription && value == "true") {
    error.format("{}={}: memory beyond the GPU's is not provided; unset it to run within the limit",
                 name, value);
    return false;
  }
  const size_t dialect = dialect_of(name);
  return dialect == std::size(kOtherDialects) || read_other(dialect, name, value, error);
}

bool EnvironmentLimits::read(Message& error) {
  static_assert(std::size(kOtherDialects) == kOthers);
  bool good = true;
  for_each_trusted_variable([&](std::string_view name, const char* value) {
    good = read_variable(name, value, error);
    return good;
  });
  return good;
}

uint64_t EnvironmentLimits::cap_for(const DeviceName& device, uint64_t physical) const {
  uint64_t cap = ours_.cap_for(device, physical);
  for (size_t i = 0; i < kOthers; ++i) {
    if (kOtherDialects[i].is_amd != device.key.starts_with("AMD-")) continue;
    const bool has_index = device.index >= 0 && device.index < kMostIndices;
    const uint64_t of_index = has_index ? of_others_[i].at[device.index] : 0;
    const uint64_t bytes = of_index != 0 ? of_index : of_others_[i].all;
    if (bytes != 0) cap = std::min(cap, Amount{.bytes = bytes}.of(physical));
  }
  return cap;
}

bool EnvironmentLimits::selects_by(Selector::Kind kind) const {
  if (kind != Selector::Kind::index) return ours_.selects_by(kind);
  return ours_.selects_by(kind) ||
         std::any_of(of_others_, of_others_ + kOthers, [](const auto& one) {
           return std::any_of(one.at, one.at + kMostIndices,
                              [](uint64_t each) { return each != 0; });
         });
}

}  // namespace fracgpu
