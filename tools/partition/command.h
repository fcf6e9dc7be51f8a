// `fracgpu partition`: shows how AMD's GPUs are divided, and divides them anew.
#pragma once

namespace fracgpu::tools {

class Command;

void add_partition_command(Command program);

}  // namespace fracgpu::tools
