// The one place that reads the environment. The text that is returned is the environment's own: a
// later setenv of the program may change it. Any thread may ask.
#pragma once

namespace fracgpu {

// The variable's value, or null when it is unset or this program runs with raised privileges
// (set-uid, file capabilities), whose environment belongs to somebody else.
[[gnu::cold]] const char* trusted_environment(const char* name);

// The variable's value, or null when it is unset, whatever privileges the program has. Only for
// variables of a vendor's runtime in this process, which reads them so itself: we follow what it
// does. Nothing that a cap rests on.
[[gnu::cold]] const char* runtime_environment(const char* name);

}  // namespace fracgpu
