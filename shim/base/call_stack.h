// Where calls came from, by libunwind. Only the preloaded library has it: what links the core
// without call_stack.cc finds these functions null.
#pragma once

#include <cstdint>

namespace fracgpu {

class FrameRules;

// The addresses to which the calling thread's functions return, the innermost first, without those
// of this library. Returns how many. `rules`: where to keep what is found out on the way, which
// makes the next time ten times faster; or null.
[[gnu::weak]] unsigned take_call_stack(uint64_t* frames, unsigned most,
                                       FrameRules* rules = nullptr);

// Logs them at level info, one line per frame, up to the first that is 0.
[[gnu::weak]] void report_frames(const uint64_t* frames, unsigned count);

// The call stack of the calling thread.
[[gnu::weak]] void report_call_stack();

}  // namespace fracgpu
