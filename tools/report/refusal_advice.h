// What would have made a refused request succeed, in sentences derived from the recording.
#pragma once

#include <string>
#include <vector>

#include "tools/report/analysis.h"

namespace fracgpu::tools::report {

// The most useful advice comes first.
std::vector<std::string> advice(const Analysis& analysis, const Refusal& refusal);

}  // namespace fracgpu::tools::report
