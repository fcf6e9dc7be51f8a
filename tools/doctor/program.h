// Whether a program would be under the cap.
#pragma once

#include <string>
#include <vector>

#include "tools/doctor/finding.h"

namespace fracgpu::tools {

// Looks at a command as it would be run: the program that its name means, and, for a script, the
// interpreters that its first line names.
Findings check_program(const std::vector<std::string>& command);

// Why the library is not loaded into the program of this file, or may do nothing in it, with a
// remedy; of check "program". Ok when nothing speaks against it.
Finding judge_executable(const std::string& path, const std::string& shown);

}  // namespace fracgpu::tools
