// The version that the simulated driver claims to be.
// It bounds what the entry-point getters hand out, and which flags are known. What the library
// exports is bounded by its making: the folder r470 has one of R470, CUDA 11.4.
// Taken from the environment once per process.
#pragma once

namespace sim {
int driver_version();
}  // namespace sim
