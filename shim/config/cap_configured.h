// Whether a cap is configured at all. Every program checks that when it starts.
#pragma once

#include <atomic>

namespace fracgpu {

enum class CapAnswer { no, yes, unknown };
extern std::atomic<CapAnswer> cap_answer;

// Determines whether a variable that sets a limit or the ceiling file is there, well-formed or not:
// one walk over the environment and one system call. For the constructor.
[[gnu::cold]] bool look_for_cap();

// Whether a cap was configured when the library was loaded.
inline bool cap_is_configured() {
  const CapAnswer answer = cap_answer.load(std::memory_order_relaxed);
  return answer == CapAnswer::unknown ? look_for_cap() : answer == CapAnswer::yes;
}

}  // namespace fracgpu
