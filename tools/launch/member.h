// A launch from its entry in the claim table to its end, shared by `fracgpu run` and `fracgpu
// queue`.
#pragma once

#include <string>
#include <vector>

#include "tools/claims/claim_table.h"
#include "tools/launch/outer_cap.h"
#include "tools/launch/request.h"

namespace fracgpu::tools {

// The name, or one of its own for this launch when it is empty. Throws when it is malformed.
std::string tenant_or_new(const std::string& name);

// Refuses, by an exception, a name whose processes run already under other caps. Those that
// `fracgpu run` started are judged by the claim table.
void check_caps_of_running(const std::string& tenant, const Request& request,
                           const std::vector<Share>& shares);

// Runs a launch that has been served to its end, gives its share back, and removes the tenant's
// ledger if nobody else is left in it. Returns the command's wait status. `explain`: says on stderr
// why it was refused memory, if it was, before that is forgotten.
int run_member(const std::string& tenant, const std::vector<std::string>& command,
               const Request& request, const std::vector<Gpu>& all, Claim claim,
               std::vector<Share> shares, bool explain = false);

// The same inside an outer cap: as another part of its tenant, which gives nothing back.
int run_inside(const OuterCap& outer, const Inside& inside, const std::vector<std::string>& command,
               const std::vector<Gpu>& all, bool explain = false);

// Where it goes, a GPU a line: "GPU 0 (GPU-…): 0.5, cap 20.0 GiB".
std::string placement_text(const Request& request, const std::vector<Share>& shares);

// Who but `tenant` holds what, a GPU a line, of the GPUs that the request could use.
std::string holders_text(const std::string& tenant, const Request& request,
                         const std::vector<Launch>& launches);

struct Removal {
  enum class State { removed, absent, in_use, failed } state = State::absent;
  std::string why{};  // it failed
};
// Removes the tenant's ledger when no process lives in it.
Removal remove_dead_ledger(const std::string& tenant);

}  // namespace fracgpu::tools
