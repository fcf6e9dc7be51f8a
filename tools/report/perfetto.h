// A report as a trace for https://ui.perfetto.dev, in the JSON form that chrome://tracing has too:
// counters of each GPU's memory, by kind and by process, with the cap; refusals are instants.
#pragma once

#include <string>

#include "tools/report/analysis.h"

namespace fracgpu::tools::report {

std::string as_perfetto(const Analysis& analysis);

// Points of the timeline that a trace is worth.
inline constexpr size_t kTracePoints = 16'384;

}  // namespace fracgpu::tools::report
