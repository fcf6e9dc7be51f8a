// The log: single lines on stderr, or in the file that FRACGPU_LOG_FILE names.
//
// FRACGPU_LOG = off | error | warn (default) | info | debug. Nothing ever goes to stdout, and a
// line is one write, so that lines of several processes do not mix. A line that cannot be written
// at once and without harm is dropped; see stderr.h.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/base/text.h"

namespace fracgpu {

enum class Level { off, error, warn, info, debug };

bool logs(Level level);

void write_line(Level level, std::string_view message);

template <typename... Args>
void report(Level level, fmt::format_string<Args...> pattern, Args&&... args) {
  if (!logs(level)) return;
  Message message;
  message.format(pattern, static_cast<Args&&>(args)...);
  write_line(level, message.view());
}

// Lets through a burst of lines and then one a second, and counts those it suppressed.
class RateLimit {
 public:
  // True if a line may be written now; `held_back` is then how many were suppressed since the last
  // one.
  bool pass(unsigned& held_back);

 private:
  std::atomic<uint64_t> next_allowed_s_{0};
  std::atomic<unsigned> burst_{0};
  std::atomic<unsigned> held_back_{0};
};

}  // namespace fracgpu
