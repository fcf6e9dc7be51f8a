// `fracgpu metrics`: caps, use, claims and refusals for Prometheus.
#pragma once

#include <CLI/CLI.hpp>

namespace fracgpu::tools {

void add_metrics_command(CLI::App& app, int& status);

}  // namespace fracgpu::tools
