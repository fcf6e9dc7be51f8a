// The lines and areas of a page's timeline: for each, a list with one number for each point.
#pragma once

#include "tools/cli/json.h"
#include "tools/report/analysis.h"

namespace fracgpu::tools::report {

// {times, caps, live, kinds: [[kind, […]], …], by_process: [[process, […]], …]}. The last two are
// in stacking order, from the bottom. Process -1 is the sum of all small ones.
Json series(const DeviceUse& use);

}  // namespace fracgpu::tools::report
