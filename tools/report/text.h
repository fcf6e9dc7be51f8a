// A report for the terminal.
#pragma once

#include <string>

#include "tools/recording/symbols.h"
#include "tools/report/analysis.h"
#include "tools/report/call_sites.h"
#include "tools/ui/drawing.h"

namespace fracgpu::tools::report {

// `top`: the maximum number of lines in a table.
std::string as_text(const Analysis& analysis, recording::Symbols& symbols, const Style& style,
                    const Naming& naming, size_t top);

}  // namespace fracgpu::tools::report
