// `fracgpu status`: who holds what, once, as text or JSON.
#pragma once

#include <string>

#include "tools/machine/machine_state.h"
#include "tools/ui/drawing.h"

namespace fracgpu::tools {

class Command;

// For people: 80 columns, a block per GPU.
std::string status_text(const MachineState& machine, const Style& style);

// For programs: one object, amounts in bytes. Fields may be added, never renamed.
std::string status_json(const MachineState& machine);

void add_status_command(Command program);

}  // namespace fracgpu::tools
