// `fracgpu explain`; see explain.h. ui/explanation.h writes the text.
#include "tools/commands/explain.h"

#include <fmt/core.h>

#include "tools/cli/arguments.h"
#include "tools/commands/show_command.h"
#include "tools/machine/json_values.h"
#include "tools/ui/explanation.h"

namespace fracgpu::tools {
namespace {

constexpr const char* kExamples = R"(Examples:
  fracgpu explain                what every tenant was refused last, and why
  fracgpu explain team-a         one tenant's
  fracgpu explain --json | jq '.tenants[].refused[] | {unix_ms, command, asked_bytes}'

The last 64 refusals of a tenant are kept in its ledger, also when its processes are gone: until
fracgpu gc removes it, or fracgpu run ends that started it (fracgpu run --explain tells it then).
Exit status: 0 told, also of one that was never refused; 1 there is no such tenant, or something
could not be read; 2 wrong usage.)";

std::string as_json(const MachineState& machine) {
  Json tenants = Json::array();
  for (const TenantUse& tenant : machine.tenants) {
    Json refused = Json::array();
    for (const RefusalUse& one : tenant.refused) {
      refused.push_back(json_of(one));
      refused.back()["story"] = story(machine, one);
      refused.back()["advice"] = Json::array(advice(machine, tenant, one));
    }
    tenants.push_back(
        {{"tenant", tenant.name}, {"refusals", refusals_of(tenant)}, {"refused", refused}});
  }
  return Json{{"tenants", tenants}, {"gpus", array_of(machine.gpus)}}.dump() + "\n";
}

std::string as_text(const MachineState& machine, bool named) {
  std::string text;
  size_t never = 0;
  for (const TenantUse& tenant : machine.tenants) {
    // Without named tenants, tenants that were never refused are only counted.
    if (!named && refusals_of(tenant) == 0 && tenant.refused.empty()) {
      ++never;
    } else {
      text += (text.empty() ? "" : "\n") + explanation(machine, tenant);
    }
  }
  if (never > 0) {
    text += fmt::format("{}{} {} never refused.\n", text.empty() ? "" : "\n",
                        never == 1 ? "1 tenant" : fmt::format("{} tenants", never),
                        never == 1 ? "was" : "were");
  }
  return text;
}

std::string told(const MachineState& machine, const ShowOptions& options) {
  return options.json ? as_json(machine) : as_text(machine, !options.scope.names.empty());
}

}  // namespace

void add_explain_command(Command program) {
  add_show_command(program, {"explain", "Tell why memory was refused, and what would have helped",
                             kExamples, true, told});
}

}  // namespace fracgpu::tools
