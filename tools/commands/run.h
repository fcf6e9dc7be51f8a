// `fracgpu run`: runs a command and its descendants as one tenant, under caps or on shares of GPUs.
#pragma once

namespace fracgpu::tools {

class Command;

// Adds the subcommand.
void add_run_command(Command program);

}  // namespace fracgpu::tools
