// The lines and areas of a page's timeline: a list for each, with a number for each of its points.
#pragma once

#include "tools/cli/json.h"
#include "tools/report/analysis.h"

namespace fracgpu::tools::report {

// {times, caps, live, kinds: [[kind, […]], …], by_process: [[process, […]], …]}, of which the last
// are in the order in which they are stacked, from below. Process -1 is all small ones together.
Json series(const DeviceUse& use);

}  // namespace fracgpu::tools::report
