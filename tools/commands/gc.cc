// `fracgpu gc`; see gc.h.
#include "tools/commands/gc.h"

#include <fmt/core.h>

#include <memory>

#include "shim/ledger/ledger_path.h"
#include "tools/claims/claim_table.h"
#include "tools/cli/arguments.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/launch/instance.h"
#include "tools/launch/member.h"
#include "tools/machine/ledger_reader.h"
#include "tools/machine/mig_driver.h"
#include "tools/record/ring_file.h"

namespace fracgpu::tools {
namespace {

constexpr const char* kExamples = R"(Examples:
  fracgpu gc                   ledgers in which no process lives, and claims and MIG instances of
                               launches that ended
  fracgpu gc team-a            this tenant's ledger alone

Nothing that lives is touched, and nothing depends on calling it: what the dead held is free at
once, and only their files stay. Ledgers of Kubernetes' claims (claim-UID) are removed only by name:
that is up to fracgpu dra, while containers may still be started with them.
Exit status: 0 nothing dead is left; 1 something had to be left, a line says why; 2 wrong usage.)";

struct GcOptions {
  std::vector<std::string> tenants;
  bool json = false;
};

bool gc(const GcOptions& options) {
  Json removed = Json::array(), left = Json::array();
  std::string text;
  bool all = true;
  for (const std::string& name : options.tenants.empty() ? tenant_names() : options.tenants) {
    if (options.tenants.empty() && name.starts_with(kClaimTenant)) continue;
    const Removal result = remove_dead_ledger(name);
    if (result.state == Removal::State::removed) {
      removed.push_back(name);
      text += fmt::format("removed the ledger of tenant {}\n", name);
    } else if (result.state == Removal::State::failed) {
      left.push_back({{"tenant", name}, {"reason", result.why}});
      complain(result.why);
      all = false;
    }
  }
  int claims = 0;
  Destroyed instances;
  if (options.tenants.empty() && ClaimTable::exists()) {
    ClaimTable table(mig_gpus);
    claims = table.tidy();
    instances = destroy_orphans(table);
  }
  if (claims > 0) text += fmt::format("dropped {} dead launches from the claim table\n", claims);
  if (instances.destroyed > 0) {
    text += fmt::format("destroyed {} MIG instances of launches that ended\n", instances.destroyed);
  }
  const int rings = options.tenants.empty() ? remove_dead_rings() : 0;
  if (rings > 0) text += fmt::format("removed the rings of {} recorders that were killed\n", rings);
  all = all && instances.left == 0;
  if (text.empty()) text = "nothing to remove\n";
  print(options.json ? Json{{"removed", removed},
                            {"left", left},
                            {"claims_dropped", claims},
                            {"instances_destroyed", instances.destroyed},
                            {"instances_left", instances.left},
                            {"rings_removed", rings}}
                               .dump() +
                           "\n"
                     : text);
  return all;
}

}  // namespace

void add_gc_command(Command program) {
  const auto options = std::make_shared<GcOptions>();
  Command command = program.add_subcommand("gc", "Remove what the dead left");
  command.add_option("TENANT", options->tenants, "Only these; all when none is named");
  command.add_flag("--json", options->json, "For programs");
  command.set_footer(kExamples);
  command.set_body([options] { return gc(*options) ? kOk : kFailed; });
}

}  // namespace fracgpu::tools
