// Subcommands that look at the machine once and say what they see, as text or JSON.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tools/machine/machine_state.h"

namespace fracgpu::tools {

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

void add_show_command(CLI::App& app, const ShowCommand& command, int& status);

// TENANT… and --all, for whoever looks.
void add_scope_options(CLI::App& command, Scope& scope);

}  // namespace fracgpu::tools
