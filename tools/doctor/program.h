// Whether a program would be under the cap.
#pragma once

#include <string>
#include <vector>

#include "tools/doctor/finding.h"

namespace fracgpu::tools {

// Checks a command as it would run: the program for its name and, for a script, the interpreters in
// its first line.
Findings check_program(const std::vector<std::string>& command);

// Why the library is not loaded into the program of this file, or may do nothing in it, with a
// remedy. The check is "program". Ok if there is no such reason.
Finding judge_executable(const std::string& path, const std::string& shown);

}  // namespace fracgpu::tools
