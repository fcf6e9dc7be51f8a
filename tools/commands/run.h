// `fracgpu run`: a command and its descendants as one tenant, under caps or on shares of GPUs.
#pragma once

#include <CLI/CLI.hpp>

namespace fracgpu::tools {

// Adds the subcommand; `status` becomes its exit status when it is the one that is called.
void add_run_command(CLI::App& app, int& status);

}  // namespace fracgpu::tools
