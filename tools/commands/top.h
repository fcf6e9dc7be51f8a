// `fracgpu top`: who holds what, live.
#pragma once

#include <CLI/CLI.hpp>

namespace fracgpu::tools {

void add_top_command(CLI::App& app, int& status);

}  // namespace fracgpu::tools
