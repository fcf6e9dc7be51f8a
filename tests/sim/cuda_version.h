// The version that the simulated driver claims to be.
// It bounds what the entry-point getters hand out, and nothing else depends on it.
// Taken from the environment once per process.
#ifndef FRACGPU_TESTS_SIM_CUDA_VERSION_H_
#define FRACGPU_TESTS_SIM_CUDA_VERSION_H_

namespace sim {
int driver_version();
}  // namespace sim

#endif  // FRACGPU_TESTS_SIM_CUDA_VERSION_H_
