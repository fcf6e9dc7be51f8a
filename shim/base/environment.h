// The one place that reads the environment.
#pragma once

namespace fracgpu {

// The variable's value, or null when it is unset or this program runs with raised privileges
// (set-uid, file capabilities), whose environment belongs to somebody else. The text is the
// environment's own: a later setenv of the program may change it.
[[gnu::cold]] const char* trusted_environment(const char* name);

}  // namespace fracgpu
