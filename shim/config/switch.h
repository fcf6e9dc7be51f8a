// Variables of the environment that are "on" or "off".
#pragma once

#include <optional>

namespace fracgpu {

// Nothing where it is not set, or is neither: then one line says so, and what that means.
[[gnu::cold]] std::optional<bool> switch_in_environment(const char* name, const char* meaning);

}  // namespace fracgpu
