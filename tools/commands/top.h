// `fracgpu top`: who holds what, live.
#pragma once

namespace fracgpu::tools {

class Command;

void add_top_command(Command program);

}  // namespace fracgpu::tools
