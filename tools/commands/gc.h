// `fracgpu gc`: removes the leftovers of dead processes.
#pragma once

namespace fracgpu::tools {

class Command;

void add_gc_command(Command program);

}  // namespace fracgpu::tools
