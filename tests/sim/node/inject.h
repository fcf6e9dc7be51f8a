// Failures, delays and meetings of threads that a test orders for one process, by environment.
// FRACGPU_SIM_FAIL="cuMemAlloc_v2:3=2,…" makes the third call return 2 and do nothing ("3+" means
// the third and all later ones); FRACGPU_SIM_DELAY_US="cuMemAlloc_v2=100,…" sleeps in each call;
// FRACGPU_SIM_AWAIT="end of cuCtxDestroy_v2=cuCtxGetId,…" lets calls of the first function wait
// until there was one of the second ("…:2": until there were two). In CUDA's driver the "end of" a
// call, when all is done but the return, can be delayed, wait and be awaited. FRACGPU_SIM_CALLS
// counts calls (calls.h). Without any of these, a call costs two predictable branches.
#pragma once

#include <atomic>

namespace sim {

// Set once, when the library is loaded. Atomic for TSan: the loader orders that before all calls,
// by a lock that TSan does not see.
extern std::atomic<bool> injecting;

// Counts the call; the result to return, or 0 to go on.
int inject(const char* function);
void inject_end(const char* function);

inline int ordered(const char* function) {
  if (injecting.load(std::memory_order_relaxed)) [[unlikely]]
    return inject(function);
  return 0;
}

// Made where a call begins; the call ends with its scope.
class CallEnd {
 public:
  explicit CallEnd(const char* function) : function_(function) {}
  ~CallEnd() {
    if (injecting.load(std::memory_order_relaxed)) [[unlikely]]
      inject_end(function_);
  }
  CallEnd(const CallEnd&) = delete;
  CallEnd& operator=(const CallEnd&) = delete;

 private:
  const char* const function_;
};

}  // namespace sim
