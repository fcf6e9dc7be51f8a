// `fracgpu cdi`: caps as devices that container engines know by name.
#pragma once

#include <CLI/CLI.hpp>

namespace fracgpu::tools {

void add_cdi_command(CLI::App& app, int& status);

}  // namespace fracgpu::tools
