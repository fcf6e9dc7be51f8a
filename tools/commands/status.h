// `fracgpu status`: shows once which tenants and processes hold memory, as text or JSON.
#pragma once

#include <string>

#include "tools/machine/machine_state.h"
#include "tools/ui/drawing.h"

namespace fracgpu::tools {

class Command;

// The status for people: 80 columns, a block per GPU.
std::string status_text(const MachineState& machine, const Style& style);

void add_status_command(Command program);

}  // namespace fracgpu::tools
