// A report as collapsed stacks, a line each: "outer;inner BYTES". speedscope and FlameGraph draw
// them.
#pragma once

#include <string>

#include "tools/recording/symbols.h"
#include "tools/report/analysis.h"

namespace fracgpu::tools::report {

enum class Of { peak, leaks, allocated };

// Each stack begins with its process; of several GPUs, with the GPU.
std::string as_collapsed(const Analysis& analysis, recording::Symbols& symbols, Of of);

}  // namespace fracgpu::tools::report
