// The command; see status.h.
#include "tools/status.h"

#include <memory>

#include "tools/output.h"

namespace fracgpu::tools {
namespace {

constexpr const char* kExamples = R"(Examples:
  fracgpu status                       every GPU, its tenants and their processes
  fracgpu status team-a                this tenant, and the GPUs that it uses
  fracgpu status --json | jq '.gpus[] | {key, used_bytes}'

A GPU's bar shows what is used, what else is claimed (fracgpu run --fraction), what else its tenants
may take under their caps, and the rest. "dead": its memory is free for others; "dying": the driver
has not let go of it yet; "exported": dead, but others still hold what it gave them. In a container
only its own tenant is shown; --all shows each whose ledger can be seen.
Exit status: 0 shown; 1 nothing was found, or something could not be read; 2 wrong usage.)";

struct StatusOptions {
  Scope scope;
  bool json = false;
};

// False when something could not be shown.
bool show(const StatusOptions& options) {
  const MachineState machine = look_at_machine(options.scope);
  for (const std::string& line : machine.complaints) complain(line);
  const bool empty = machine.tenants.empty() && machine.gpus.empty();
  if (empty && machine.complaints.empty()) {
    complain(
        "there is no GPU here, and no tenant has a ledger; one is made by the first GPU call under "
        "a cap");
  }
  print(options.json ? status_json(machine) : status_text(machine, Style::of_stdout()));
  return !empty && machine.complaints.empty();
}

}  // namespace

void add_status_command(CLI::App& app, int& status) {
  const auto options = std::make_shared<StatusOptions>();
  CLI::App* const command =
      app.add_subcommand("status", "Show who may use, uses and was refused what");
  command->add_option("TENANT", options->scope.names, "Only these; all when none is named");
  command->add_flag("--all", options->scope.all, "Other tenants too, from inside a container");
  command->add_flag("--json", options->json, "For programs; amounts are in bytes");
  command->footer(kExamples);
  command->callback([options, &status] {
    bool all = false;
    status = guarded([&] { all = show(*options); });
    if (!all) status = 1;
  });
}

}  // namespace fracgpu::tools
