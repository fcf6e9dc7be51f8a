// `fracgpu gc`: removes what the dead left.
#pragma once

namespace fracgpu::tools {

class Command;

void add_gc_command(Command program);

}  // namespace fracgpu::tools
