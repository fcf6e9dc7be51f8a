// See show_command.h.
#include "tools/commands/show_command.h"

#include <fmt/format.h>

#include <memory>

#include "tools/cli/output.h"

namespace fracgpu::tools {
namespace {

// False when something could not be shown.
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

void add_show_command(CLI::App& app, const ShowCommand& command, int& status) {
  const auto options = std::make_shared<ShowOptions>();
  // Who tells why must know who else is there.
  options->scope.neighbours = command.of_tenants;
  CLI::App* const added = app.add_subcommand(command.name, command.about);
  add_scope_options(*added, options->scope);
  added->add_flag("--json", options->json, "For programs; amounts are in bytes");
  added->footer(command.examples);
  added->callback([command, options, &status] {
    bool all = false;
    status = guarded([&] { all = show(command, *options); });
    if (!all) status = 1;
  });
}

void add_scope_options(CLI::App& command, Scope& scope) {
  command.add_option("TENANT", scope.names, "Only these; all when none is named");
  command.add_flag("--all", scope.all, "Other tenants too, from inside a container");
}

}  // namespace fracgpu::tools
