// `fracgpu queue`: runs commands from named queues on shares of GPUs, as many at once as fit.
#pragma once

#include <CLI/CLI.hpp>

namespace fracgpu::tools {

void add_queue_command(CLI::App& app, int& status);

}  // namespace fracgpu::tools
