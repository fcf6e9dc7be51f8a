// The driver's log: one JSON object per line on stderr for each event.
#pragma once

#include <string>

#include "tools/cli/json.h"

namespace fracgpu::tools::dra {

// `level` is "info", "warning" or "error". `more` are further fields, such as the claim. Any thread
// may call it. A line is written at once.
void log(const char* level, const std::string& message, const Json& more = Json::object());

}  // namespace fracgpu::tools::dra
