// `fracgpu cdi`: caps as devices that container engines know by name.
#pragma once

namespace fracgpu::tools {

class Command;

void add_cdi_command(Command program);

}  // namespace fracgpu::tools
