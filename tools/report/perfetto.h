// A report as a trace for https://ui.perfetto.dev, in the JSON format of chrome://tracing: counters
// of each GPU's memory, by kind and by process, with the cap. Refusals are instants.
#pragma once

#include <string>

#include "tools/report/analysis.h"

namespace fracgpu::tools::report {

std::string as_perfetto(const Analysis& analysis);

// Number of timeline points in a trace.
inline constexpr size_t kTracePoints = 16'384;

}  // namespace fracgpu::tools::report
