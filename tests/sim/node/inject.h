// Failures and delays that a test orders for one process, by environment.
// FRACGPU_SIM_FAIL="cuMemAlloc_v2:3=2,…" makes the third call return 2 and do nothing ("3+" means
// the third and all later ones); FRACGPU_SIM_DELAY_US="cuMemAlloc_v2=100,…" sleeps in each call,
// "end of cuCtxDestroy=100" after what the call does. FRACGPU_SIM_CALLS counts them (calls.h).
// Without any of these, a call costs one predictable branch.
#pragma once

namespace sim {

// Set once, when the library is loaded.
extern bool injecting;

// Counts the call; the result to return, or 0 to go on.
int inject(const char* function);

inline int ordered(const char* function) {
  if (injecting) [[unlikely]]
    return inject(function);
  return 0;
}

}  // namespace sim
