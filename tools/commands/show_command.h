// Subcommands that look at the machine once and say what they see, as text or JSON.
#pragma once

#include <string>

#include "tools/machine/machine_state.h"

namespace fracgpu::tools {

class Command;

struct ShowOptions {
  Scope scope;
  bool json = false;
};

struct ShowCommand {
  const char* name;
  const char* about;
  const char* examples;
  bool of_tenants;  // GPUs alone are nothing to speak of
  std::string (*text)(const MachineState& machine, const ShowOptions& options);
};

void add_show_command(Command program, const ShowCommand& command);

// TENANT… and --all, for whoever looks.
void add_scope_options(Command command, Scope& scope);

}  // namespace fracgpu::tools
