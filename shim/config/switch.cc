// Reads a switch; see switch.h.
#include "shim/config/switch.h"

#include <string.h>

#include "shim/base/environment.h"
#include "shim/base/report.h"

namespace fracgpu {

std::optional<bool> switch_in_environment(const char* name, const char* meaning) {
  const char* const text = trusted_environment(name);
  if (text == nullptr) return std::nullopt;
  if (strcmp(text, "on") == 0) return true;
  if (strcmp(text, "off") == 0) return false;
  report(Level::error, "{}={} is neither \"on\" nor \"off\"; {}", name, quoted(text).view(),
         meaning);
  return std::nullopt;
}

Switch::State Switch::read() {
  const std::optional<bool> said = switch_in_environment(name_, meaning_);
  const State state = !said.has_value() ? State::unset : *said ? State::on : State::off;
  state_.store(state, std::memory_order_relaxed);
  return state;
}

}  // namespace fracgpu
