// `fracgpu doctor`: whether the cap is in force here, and if not, why not.
#pragma once

namespace fracgpu::tools {

class Command;

void add_doctor_command(Command program);

}  // namespace fracgpu::tools
