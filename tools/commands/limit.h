// `fracgpu limit`: changes a tenant's cap while it runs.
#pragma once

namespace fracgpu::tools {

class Command;

void add_limit_command(Command program);

}  // namespace fracgpu::tools
