// A report for programs: the whole analysis as JSON.
#pragma once

#include <string>

#include "tools/recording/symbols.h"
#include "tools/report/analysis.h"

namespace fracgpu::tools::report {

// A call stack is a list of functions, the outermost first. Other values refer to it by its number.
std::string as_json(const Analysis& analysis, recording::Symbols& symbols);

}  // namespace fracgpu::tools::report
