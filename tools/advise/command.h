// `fracgpu advise`: how small a cap a program may have.
#pragma once

namespace fracgpu::tools {

class Command;

void add_advise_command(Command program);

}  // namespace fracgpu::tools
