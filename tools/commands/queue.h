// `fracgpu queue`: runs commands from named queues on shares of GPUs, as many at once as fit.
#pragma once

namespace fracgpu::tools {

class Command;

void add_queue_command(Command program);

}  // namespace fracgpu::tools
