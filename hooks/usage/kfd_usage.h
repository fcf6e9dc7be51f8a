// Driver-reported usage of AMD devices: what KFD counts for each process.
#pragma once

#include <cstdint>

#include "hooks/usage/kfd_topology.h"

namespace fracgpu::kfd {

// Bytes that a process holds of a device. False where KFD does not tell, or tells what cannot be:
// on APUs, kernels subtract host memory that is freed, and print what is left without a sign
// ("drm/amdgpu: Fix vram_usage underflow", amd-gfx, 14 Oct 2025).
bool bytes_of_self(const char* device_key, uint64_t& bytes);
// At least so much is mapped of the device by this process, with what it has imported: what the
// kernel tells of its descriptors of the render node, in every PID namespace.
bool mapped_by_self(const char* device_key, uint64_t& bytes);
bool bytes_of(uint32_t host_pid, const char* device_key, uint64_t& bytes);

// What is in use on the whole GPU that the device is or is a part of, by amdgpu's own sum: with
// what the dead still hold, and what the kernel keeps for itself.
bool used_bytes(const char* device_key, uint64_t& bytes);
// Of that, what KFD counts for no living process.
bool most_held_by_dead(const char* device_key, uint64_t& bytes);

}  // namespace fracgpu::kfd
