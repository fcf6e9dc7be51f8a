// What would have let a refused request pass, in sentences that follow from the recording.
#pragma once

#include <string>
#include <vector>

#include "tools/report/analysis.h"

namespace fracgpu::tools::report {

// The most useful first.
std::vector<std::string> advice(const Analysis& analysis, const Refusal& refusal);

}  // namespace fracgpu::tools::report
