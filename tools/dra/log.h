// What the driver tells: a JSON object on a line of stderr for each thing that happened.
#pragma once

#include <string>

#include "tools/cli/json.h"

namespace fracgpu::tools::dra {

// `level` is "info", "warning" or "error". `more` are fields beside, such as the claim. Any thread;
// a line is written at once.
void log(const char* level, const std::string& message, const Json& more = Json::object());

}  // namespace fracgpu::tools::dra
