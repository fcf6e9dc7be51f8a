// `fracgpu report`: tells what a recording of GPU memory says.
#pragma once

namespace fracgpu::tools {

class Command;

void add_report_command(Command program);

}  // namespace fracgpu::tools
