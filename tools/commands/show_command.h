// Subcommands that read the machine's state once and print it, as text or JSON.
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
  bool of_tenants;  // GPUs alone are not worth showing
  std::string (*text)(const MachineState& machine, const ShowOptions& options);
};

void add_show_command(Command program, const ShowCommand& command);

// Adds TENANT… and --all, for commands that show tenants.
void add_scope_options(Command command, Scope& scope);

}  // namespace fracgpu::tools
