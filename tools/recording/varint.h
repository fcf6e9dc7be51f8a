// Numbers and texts in the columns of a recording: seven bits a byte, the lowest first. Split
// numbers have their lowest byte in a separate column.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fracgpu::recording {

// Why a writer cannot have written these bytes. The text is a few words.
class Damage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

constexpr uint64_t zigzag(uint64_t value) {
  return value << 1 ^ (0 - (value >> 63));
}
constexpr uint64_t from_zigzag(uint64_t value) {
  return value >> 1 ^ (0 - (value & 1));
}

class Encoder {
 public:
  void number(uint64_t value) {
    while (value >= 0x80) {
      bytes_.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    bytes_.push_back(static_cast<char>(value));
  }
  // A number that is also small if it is negative.
  void difference(uint64_t value) { number(zigzag(value)); }
  void byte(uint8_t value) { bytes_.push_back(static_cast<char>(value)); }
  void text(std::string_view text) {
    number(text.size());
    bytes_.append(text);
  }

  const std::string& bytes() const { return bytes_; }
  void clear() { bytes_.clear(); }

 private:
  std::string bytes_;
};

// Never reads beyond the given bytes, whatever they contain: throws Damage instead.
class Decoder {
 public:
  Decoder() = default;
  explicit Decoder(std::string_view bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  uint64_t number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) break;
      const auto byte = static_cast<uint8_t>(*at_++);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw Damage("a number without an end");
  }
  uint64_t number_below(uint64_t limit) {
    const uint64_t value = number();
    if (value >= limit) throw Damage("a number that is too large");
    return value;
  }
  uint64_t difference() { return from_zigzag(number()); }
  uint8_t byte() {
    if (at_ == end_) throw Damage("a column that is too short");
    return static_cast<uint8_t>(*at_++);
  }
  std::string_view text(uint64_t most) {
    const uint64_t size = number();
    if (size > most || size > static_cast<uint64_t>(end_ - at_)) {
      throw Damage("a text that is too long");
    }
    const std::string_view text(at_, static_cast<size_t>(size));
    at_ += size;
    return text;
  }

  // The next bytes, as a separate decoder.
  Decoder part(uint64_t size) {
    if (size > static_cast<uint64_t>(end_ - at_)) throw Damage("a column that is too short");
    const std::string_view bytes(at_, static_cast<size_t>(size));
    at_ += size;
    return Decoder(bytes);
  }

  bool at_end() const { return at_ == end_; }

 private:
  const char* at_ = nullptr;
  const char* end_ = nullptr;
};

// The low bits of times and numbers are noise, which spoils the compression of data mixed with it.
// Splitting makes a recording an eighth smaller.
struct SplitEncoder {
  void number(uint64_t value) {
    high.number(value >> 8);
    low.byte(static_cast<uint8_t>(value));
  }
  Encoder high{}, low{};
};

struct SplitDecoder {
  uint64_t number() { return high.number() << 8 | low.byte(); }
  bool at_end() const { return high.at_end() && low.at_end(); }
  Decoder high{}, low{};
};

}  // namespace fracgpu::recording
