// `fracgpu explain`: why a tenant was refused memory, and what would have helped.
#pragma once

namespace fracgpu::tools {

class Command;

void add_explain_command(Command program);

}  // namespace fracgpu::tools
