// Why a tenant was refused memory, and what would have helped, in words. Everything said follows
// from what was read: from the refusals' records, and from how the machine stood when it was looked
// at.
#pragma once

#include <string>
#include <vector>

#include "tools/machine/machine_state.h"

namespace fracgpu::tools {

// What would have made room for what was refused, or would now: a sentence each, the most useful
// first. (advice.cc)
std::vector<std::string> advice(const MachineState& machine, const TenantUse& tenant,
                                const RefusalUse& refusal);

// Whether the asking process was the one that held the most. (advice.cc)
bool held_the_most_itself(const RefusalUse& refusal);

// Who asked for what, and why not: one paragraph, unwrapped.
std::string story(const MachineState& machine, const RefusalUse& refusal);

// On all devices, and on those that could not be told.
uint64_t refusals_of(const TenantUse& tenant);

// Of one tenant, in paragraphs of 80 columns.
std::string explanation(const MachineState& machine, const TenantUse& tenant);

// The same on stderr, of a tenant that was refused anything. Looks at the machine itself.
void complain_of_refusals(const std::string& tenant);

}  // namespace fracgpu::tools
