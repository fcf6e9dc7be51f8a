// --manual and --completion: the command's own man page and completions.
#pragma once

#include <CLI/CLI.hpp>

namespace fracgpu::tools {

// Adds both to the command, which must have all its subcommands when it parses.
void add_manual_options(CLI::App& app);

}  // namespace fracgpu::tools
