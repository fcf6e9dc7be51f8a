// `fracgpu report`: shows a recording of GPU memory.
#pragma once

namespace fracgpu::tools {

class Command;

void add_report_command(Command program);

}  // namespace fracgpu::tools
