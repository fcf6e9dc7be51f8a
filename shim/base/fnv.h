// The hash FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv), for names that are compared by hash.
#pragma once

#include <cstdint>
#include <string_view>

namespace fracgpu {

class Fnv1a {
 public:
  constexpr Fnv1a& mix(uint64_t word) {
    value_ = (value_ ^ word) * 0x100000001b3;
    return *this;
  }
  constexpr Fnv1a& mix(std::string_view text) {
    for (const char c : text) mix(uint64_t{static_cast<unsigned char>(c)});
    return *this;
  }
  constexpr uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace fracgpu
