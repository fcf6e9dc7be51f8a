// The version that the simulated driver claims to be.
// It bounds what the entry-point getters hand out, and nothing else depends on it.
// Taken from the environment once per process.
#pragma once

namespace sim {
int driver_version();
}  // namespace sim
