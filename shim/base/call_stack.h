// Where calls came from, by libunwind. Only the preloaded library has it: in programs that link the
// core without call_stack.cc these functions are null.
#pragma once

#include <cstdint>

namespace fracgpu {

class FrameRules;

// The addresses to which the calling thread's functions return, the innermost first, without those
// of this library. Returns how many. `rules`: a cache of frame rules, which makes the next walk ten
// times faster; or null.
[[gnu::weak]] unsigned take_call_stack(uint64_t* frames, unsigned most,
                                       FrameRules* rules = nullptr);

// Logs them at level info, one line per frame, up to the first frame that is 0.
[[gnu::weak]] void report_frames(const uint64_t* frames, unsigned count);

// The call stack of the calling thread.
[[gnu::weak]] void report_call_stack();

}  // namespace fracgpu
