// Variables of the environment that are "on" or "off".
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace fracgpu {

// Empty if the variable is not set, or is neither. In the second case prints one line that says so
// and that includes `meaning`.
[[gnu::cold]] std::optional<bool> switch_in_environment(const char* name, const char* meaning);

// A switch that is read once, when `get` is first called. For objects with static storage; any
// thread may call `get` at any time.
class Switch {
 public:
  constexpr Switch(const char* name, const char* meaning) : name_(name), meaning_(meaning) {}

  std::optional<bool> get() {
    State state = state_.load(std::memory_order_relaxed);
    if (state == State::unread) state = read();
    return state == State::unset ? std::nullopt : std::optional(state == State::on);
  }

 private:
  enum class State : uint8_t { unread, unset, off, on };
  [[gnu::cold]] State read();

  const char* const name_;
  const char* const meaning_;
  std::atomic<State> state_{State::unread};
};

}  // namespace fracgpu
