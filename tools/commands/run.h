// `fracgpu run`: a command and its descendants as one tenant, under caps or on shares of GPUs.
#pragma once

namespace fracgpu::tools {

class Command;

// Adds the subcommand; `status` becomes its exit status when it is the one that is called.
void add_run_command(Command program);

}  // namespace fracgpu::tools
