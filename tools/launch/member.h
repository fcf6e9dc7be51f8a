// A launch from its entry in the claim table to its end, shared by `fracgpu run` and `fracgpu
// queue`.
#pragma once

#include <string>
#include <vector>

#include "tools/claims/claim_table.h"
#include "tools/launch/outer_cap.h"
#include "tools/launch/request.h"

namespace fracgpu::tools {

// Returns the name, or a generated one for this launch if it is empty. Throws if the name is
// malformed.
std::string tenant_or_new(const std::string& name);

// Throws if the name's processes already run under other caps. The claim table checks the processes
// that `fracgpu run` started.
void check_caps_of_running(const std::string& tenant, const Request& request,
                           const std::vector<Share>& shares);

// Runs a served launch to its end, gives its share back, and removes the tenant's ledger if no
// process is left in it. Returns the command's wait status. With `explain`, prints to stderr why
// memory was refused, if it was, before the ledger is removed.
int run_member(const std::string& tenant, const std::vector<std::string>& command,
               const Request& request, const std::vector<Gpu>& all, Claim claim,
               std::vector<Share> shares, bool explain = false);

// The same inside an outer cap: the command runs as another part of the outer tenant, and gives
// nothing back.
int run_inside(const OuterCap& outer, const Inside& inside, const std::vector<std::string>& command,
               const std::vector<Gpu>& all, bool explain = false);

// The placement, one GPU a line: "GPU 0 (GPU-…): 0.5, cap 20.0 GiB".
std::string placement_text(const Request& request, const std::vector<Share>& shares);

// What other tenants hold on the GPUs that the request could use, one GPU a line.
std::string holders_text(const std::string& tenant, const Request& request,
                         const std::vector<Launch>& launches);

struct Removal {
  enum class State { removed, absent, in_use, failed } state = State::absent;
  std::string why{};  // set if it failed
};
// Removes the tenant's ledger if no process lives in it.
Removal remove_dead_ledger(const std::string& tenant);

}  // namespace fracgpu::tools
