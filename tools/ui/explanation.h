// Explains in words why a tenant was refused memory, and what would have helped. Every sentence
// follows from data that was read: from the refusals' records, and from the machine's state when it
// was read.
#pragma once

#include <string>
#include <vector>

#include "tools/machine/machine_state.h"

namespace fracgpu::tools {

// What would have made room for the refused request, or would make it now: one sentence each, the
// most useful first. (advice.cc)
std::vector<std::string> advice(const MachineState& machine, const TenantUse& tenant,
                                const RefusalUse& refusal);

// Whether the asking process itself held the most. (advice.cc)
bool held_the_most_itself(const RefusalUse& refusal);

// Which process asked for what, and why it was refused: one paragraph, unwrapped.
std::string story(const MachineState& machine, const RefusalUse& refusal);

// The number of refusals on all devices, with those whose device is unknown.
uint64_t refusals_of(const TenantUse& tenant);

// The explanation for one tenant, in paragraphs of 80 columns.
std::string explanation(const MachineState& machine, const TenantUse& tenant);

// Prints the same to stderr if the tenant was refused anything. Reads the machine's state itself.
void complain_of_refusals(const std::string& tenant);

}  // namespace fracgpu::tools
