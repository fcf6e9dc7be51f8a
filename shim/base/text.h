// Text without the heap: a fixed-size buffer that fmt writes into.
//
// The shim may run where malloc must not be entered (inside another interposer, in a signal
// handler), so every message is built in place and cut off if it is too long.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace fracgpu {

// Writes into `to`, at most `room` bytes and no NUL behind them. Returns how many.
size_t format_into(char* to, size_t room, fmt::string_view pattern, fmt::format_args arguments);

template <size_t N>
class Text {
 public:
  constexpr Text() {
    // Initialises all of it in a static object, which then needs no code when the library is
    // loaded.
    if (std::is_constant_evaluated()) std::fill_n(chars_, N, '\0');
    chars_[0] = '\0';
  }
  explicit Text(std::string_view text) { assign(text); }

  void assign(std::string_view text) {
    size_ = 0;
    append("{}", text);
  }
  template <typename... Args>
  void format(fmt::format_string<Args...> pattern, Args&&... args) {
    size_ = 0;
    append(pattern, static_cast<Args&&>(args)...);
  }
  template <typename... Args>
  void append(fmt::format_string<Args...> pattern, Args&&... args) {
    size_ += format_into(chars_ + size_, N - 1 - size_, pattern, fmt::make_format_args(args...));
    chars_[size_] = '\0';
  }

  // Replaces by '?' all that could steer a terminal or begin another line, or is not ASCII.
  void make_printable() {
    for (size_t i = 0; i < size_; ++i) {
      if (chars_[i] < ' ' || chars_[i] > '~') chars_[i] = '?';
    }
  }

  const char* c_str() const { return chars_; }
  std::string_view view() const { return {chars_, size_}; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  void clear() {
    size_ = 0;
    chars_[0] = '\0';
  }

 private:
  char chars_[N];
  size_t size_ = 0;
};

// Long enough for the longest line of the log.
using Message = Text<480>;

// Foreign text, quoted for a message: long or unprintable text must not garble a log.
inline Text<72> quoted(std::string_view text) {
  constexpr size_t kShown = 48;
  Text<72> out;
  out.append("'");
  for (const char c : text.substr(0, kShown)) {
    out.append("{}", c >= ' ' && c <= '~' ? c : '?');
  }
  out.append("{}'", text.size() > kShown ? "..." : "");
  return out;
}

// "12.0 GiB", "512.0 MiB", "100 bytes": one form for every number of bytes that a person reads.
inline Text<24> human_bytes(unsigned long long bytes) {
  Text<24> text;
  const char* const names[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) {
    text.format("{} bytes", bytes);
    return text;
  }
  // Rounded, in tenths: floating-point formatting would pull in big tables. `whole` is in units of
  // a 1024th of the unit.
  constexpr unsigned long long kLargest = 10240;
  const auto tenths_of = [](unsigned long long whole) {
    return whole / 1024 * 10 + (whole % 1024 * 10 + 512) / 1024;
  };
  int unit = 0;
  unsigned long long whole = bytes;
  for (; unit < 5 && tenths_of(whole) >= kLargest; ++unit) whole /= 1024;
  const unsigned long long tenths = tenths_of(whole);
  text.format("{}.{} {}", tenths / 10, tenths % 10, names[unit]);
  return text;
}

}  // namespace fracgpu
