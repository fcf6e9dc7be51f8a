// See show_command.h.
#include "tools/commands/show_command.h"

#include <fmt/core.h>

#include <memory>

#include "tools/cli/arguments.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/output.h"

namespace fracgpu::tools {
namespace {

// False if something could not be shown.
bool show(const ShowCommand& command, const ShowOptions& options) {
  const MachineState machine = look_at_machine(options.scope);
  for (const std::string& line : machine.complaints) complain(line);
  const bool nothing = machine.tenants.empty() && (command.of_tenants || machine.gpus.empty());
  if (nothing && machine.complaints.empty()) {
    complain(
        fmt::format("{}no tenant has a ledger on this machine; one is made by the first GPU "
                    "call under a cap",
                    machine.gpus.empty() ? "no driver shows a GPU here, and " : ""));
  }
  print(command.text(machine, options));
  return !nothing && machine.complaints.empty();
}

}  // namespace

void add_show_command(Command program, const ShowCommand& command) {
  const auto options = std::make_shared<ShowOptions>();
  // An explanation needs the other tenants on the GPUs.
  options->scope.neighbours = command.of_tenants;
  Command added = program.add_subcommand(command.name, command.about);
  add_scope_options(added, options->scope);
  added.add_flag("--json", options->json, "For programs; amounts are in bytes");
  added.set_footer(command.examples);
  added.set_body([command, options] { return show(command, *options) ? kOk : kFailed; });
}

void add_scope_options(Command command, Scope& scope) {
  command.add_option("TENANT", scope.names, "Only these; all when none is named");
  command.add_flag("--all", scope.all, "Other tenants too, from inside a container");
}

}  // namespace fracgpu::tools
