// A report as collapsed stacks, a line each: "outer;inner BYTES". speedscope and FlameGraph draw
// them.
#pragma once

#include <string>

#include "tools/recording/symbols.h"
#include "tools/report/analysis.h"

namespace fracgpu::tools::report {

// `temporary`: what was released before the process allocated anything else.
enum class Of { peak, leaks, allocated, temporary };

// Each stack begins with its process; of several GPUs, with the GPU.
// `callers_last`: the innermost function comes first, so that flame graphs grow from those that
// allocate to their callers.
std::string as_collapsed(const Analysis& analysis, recording::Symbols& symbols, Of of,
                         bool callers_last = false);

// Of two recordings, as difffolded.pl has it: a stack with the bytes of the first and of the
// second. Processes go by their names alone.
std::string as_collapsed(const Analysis& before, const Analysis& after, recording::Symbols& symbols,
                         Of of, bool callers_last);

}  // namespace fracgpu::tools::report
