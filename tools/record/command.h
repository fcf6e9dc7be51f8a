// `fracgpu record`: records the GPU memory of a launch tree or of a running tenant.
#pragma once

namespace fracgpu::tools {

class Command;

void add_record_command(Command program);

}  // namespace fracgpu::tools
