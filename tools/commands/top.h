// `fracgpu top`: shows live which tenants and processes hold memory.
#pragma once

namespace fracgpu::tools {

class Command;

void add_top_command(Command program);

}  // namespace fracgpu::tools
