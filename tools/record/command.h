// `fracgpu record`: records what a launch tree, or a tenant that runs, does with GPU memory.
#pragma once

namespace fracgpu::tools {

class Command;

void add_record_command(Command program);

}  // namespace fracgpu::tools
