// The report as one HTML file, for a browser without a network: the recording's data, and the code
// that draws it (the files of page/, which are built into the command).
#pragma once

#include <string>

#include "tools/recording/symbols.h"
#include "tools/report/analysis.h"
#include "tools/report/call_sites.h"

namespace fracgpu::tools::report {

std::string page(const Analysis& analysis, recording::Symbols& symbols, const Naming& naming);

}  // namespace fracgpu::tools::report
