// `fracgpu explain`: why a tenant was refused memory, and what would have helped.
#pragma once

#include <string>
#include <vector>

#include "tools/machine/machine_state.h"

namespace fracgpu::tools {

class Command;

// What would have made room for what was refused, or would now: a sentence each, the most useful
// first.
std::vector<std::string> advice(const MachineState& machine, const TenantUse& tenant,
                                const RefusalUse& refusal);

// Whether the asking process was the one that held the most.
bool held_the_most_itself(const RefusalUse& refusal);

// Of one tenant, in paragraphs.
std::string explanation(const MachineState& machine, const TenantUse& tenant);

// The same on stderr, of a tenant that was refused anything.
void complain_of_refusals(const std::string& tenant);

void add_explain_command(Command program);

}  // namespace fracgpu::tools
