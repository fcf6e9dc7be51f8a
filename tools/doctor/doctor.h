// `fracgpu doctor`: is the cap in force here, and if not, why not?
#pragma once

#include <CLI/CLI.hpp>

namespace fracgpu::tools {

void add_doctor_command(CLI::App& app, int& status);

}  // namespace fracgpu::tools
