// `fracgpu metrics`: caps, use, claims and refusals for Prometheus.
#pragma once

namespace fracgpu::tools {

class Command;

void add_metrics_command(Command program);

}  // namespace fracgpu::tools
