// `fracgpu gc`: removes what the dead left.
#pragma once

#include <CLI/CLI.hpp>

namespace fracgpu::tools {

void add_gc_command(CLI::App& app, int& status);

}  // namespace fracgpu::tools
