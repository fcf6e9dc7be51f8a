// Each event of a recording as a line of JSON, for other programs.
#pragma once

#include <functional>
#include <string>

#include "tools/recording/reader.h"
#include "tools/recording/symbols.h"

namespace fracgpu::tools::report {

// Calls write(text) with some lines at a time. Amounts are in bytes. Fields that do not apply to an
// event are left out.
void write_event_lines(recording::Reader& reader, recording::Symbols& symbols,
                       const std::function<void(const std::string&)>& write);

}  // namespace fracgpu::tools::report
