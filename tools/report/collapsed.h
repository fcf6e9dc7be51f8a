// A report as collapsed stacks, one a line: "outer;inner BYTES". speedscope and FlameGraph draw
// them.
#pragma once

#include <string>

#include "tools/recording/symbols.h"
#include "tools/report/analysis.h"

namespace fracgpu::tools::report {

// `temporary`: memory that was released before the process allocated anything else.
enum class Of { peak, leaks, allocated, temporary };

// Each stack begins with its process or, with several GPUs, with the GPU. `callers_last`: the
// innermost function comes first, so that flame graphs grow from allocating functions to their
// callers.
std::string as_collapsed(const Analysis& analysis, recording::Symbols& symbols, Of of,
                         bool callers_last = false);

// Compares two recordings in the format of difffolded.pl: each stack with its bytes in the first
// and in the second recording. Processes are identified by their names only.
std::string as_collapsed(const Analysis& before, const Analysis& after, recording::Symbols& symbols,
                         Of of, bool callers_last);

}  // namespace fracgpu::tools::report
