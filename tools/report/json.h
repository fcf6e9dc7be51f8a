// A report for programs: all that the analysis has, as JSON.
#pragma once

#include <string>

#include "tools/recording/symbols.h"
#include "tools/report/analysis.h"

namespace fracgpu::tools::report {

// Call stacks are lists of functions, the outermost first, and named by their number elsewhere.
std::string as_json(const Analysis& analysis, recording::Symbols& symbols);

}  // namespace fracgpu::tools::report
