// Whether a cap is configured at all: the question that every program asks when it starts.
#pragma once

#include <atomic>

namespace fracgpu {

inline constexpr char kLimitVariable[] = "FRACGPU_MEMORY_LIMIT";

enum class CapAnswer { no, yes, unknown };
extern std::atomic<CapAnswer> cap_answer;

// Finds out whether FRACGPU_MEMORY_LIMIT or the ceiling file is there, well-formed or not: one look
// at the environment and one system call. For the constructor.
[[gnu::cold]] bool look_for_cap();

// As it was when the library was loaded.
inline bool cap_is_configured() {
  const CapAnswer answer = cap_answer.load(std::memory_order_relaxed);
  return answer == CapAnswer::unknown ? look_for_cap() : answer == CapAnswer::yes;
}

}  // namespace fracgpu
