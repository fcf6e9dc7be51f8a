// `fracgpu limit`: changes a tenant's cap while it runs.
#pragma once

#include <CLI/CLI.hpp>

namespace fracgpu::tools {

void add_limit_command(CLI::App& app, int& status);

}  // namespace fracgpu::tools
