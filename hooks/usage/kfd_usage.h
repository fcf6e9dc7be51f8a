// Driver-reported usage of AMD devices: KFD's count for each process.
#pragma once

#include <cstdint>

#include "hooks/usage/kfd_topology.h"

namespace fracgpu::kfd {

// Bytes that a process holds on a device. False if KFD does not report them, or reports an
// impossible number: on APUs, kernels subtract freed host memory and print the result without a
// sign ("drm/amdgpu: Fix vram_usage underflow", amd-gfx, 14 Oct 2025).
bool bytes_of_self(const char* device_key, uint64_t& bytes);
// The least that this process has mapped of the device, including its imports. The kernel reports
// it for the process's descriptors of the render node, in every PID namespace.
bool mapped_by_self(const char* device_key, uint64_t& bytes);
bool bytes_of(uint32_t host_pid, const char* device_key, uint64_t& bytes);

// Memory in use on the whole GPU that the device is, or is a part of, by amdgpu's own sum. It
// includes what dead processes still hold and what the kernel keeps for itself.
bool used_bytes(const char* device_key, uint64_t& bytes);
// The part of `used_bytes` that KFD counts for no living process. KFD counts memory for the process
// that allocated it and for no importer (kfd_ioctl_alloc_memory_of_gpu in Linux's kfd_chardev.c).
// Kernels that count some of it twice, or whose memory is moved to the host, may hide as much of
// dead processes' memory. Only the simulated KFD has checked this.
bool most_held_by_dead(const char* device_key, uint64_t& bytes);

}  // namespace fracgpu::kfd
