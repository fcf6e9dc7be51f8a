// `fracgpu status`; see status.h.
#include "tools/commands/status.h"

#include "tools/cli/arguments.h"
#include "tools/commands/show_command.h"
#include "tools/machine/json_values.h"

namespace fracgpu::tools {
namespace {

constexpr const char* kExamples = R"(Examples:
  fracgpu status                       every GPU, its tenants and their processes
  fracgpu status team-a                this tenant, and the GPUs that it uses
  fracgpu status --json | jq '.gpus[] | {key, used_bytes}'

A GPU's bar shows what is used, what else is claimed (fracgpu run --fraction), what else its tenants
may take under their caps, and the rest. "dead": its memory is free for others; "dying": the driver
has not let go of it yet; "exported": dead, but others still hold what it gave them; "importer": of
another tenant, with memory of this one imported. In a container only its own tenant is shown; --all
shows each whose ledger can be seen.
Exit status: 0 shown; 1 nothing was found, or something could not be read; 2 wrong usage.)";

// The status for programs: one object, amounts in bytes. Fields may be added, never renamed.
std::string status_json(const MachineState& machine) {
  return Json{{"gpus", array_of(machine.gpus)}, {"tenants", array_of(machine.tenants)}}.dump() +
         "\n";
}

std::string shown(const MachineState& machine, const ShowOptions& options) {
  return options.json ? status_json(machine) : status_text(machine, Style::of_stdout());
}

}  // namespace

void add_status_command(Command program) {
  add_show_command(
      program, {"status", "Show who may use, uses and was refused what", kExamples, false, shown});
}

}  // namespace fracgpu::tools
