// A page's data, as the JSON that page/*.js reads. Long lists keep the largest entries and add up
// the rest, so that a page of any recording opens in a browser.
#pragma once

#include "tools/cli/json.h"
#include "tools/recording/symbols.h"
#include "tools/report/analysis.h"
#include "tools/report/call_sites.h"

namespace fracgpu::tools::report {

Json page_data(const Analysis& analysis, recording::Symbols& symbols, const Naming& naming);

}  // namespace fracgpu::tools::report
