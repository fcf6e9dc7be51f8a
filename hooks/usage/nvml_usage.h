// Driver-reported usage of NVIDIA devices, from NVML. These are the functions of
// shim/vendor/backend.h, for keys that begin with "GPU-" or "MIG-".
#pragma once

#include <cstdint>

#include "shim/config/device_name.h"

namespace fracgpu::nvml {

// "off": NVML is neither loaded nor called, for machines on which it hangs or is slow. Estimates
// replace its reports. "on" or unset: NVML is used if it is present.
inline constexpr char kSwitch[] = "FRACGPU_NVML";

void start();
bool bytes_of_self(const char* uuid, uint64_t& bytes);
bool bytes_of(uint32_t host_pid, const char* uuid, uint64_t& bytes);
bool index_of(const char* uuid, int& index);
bool physical_bytes(const char* uuid, uint64_t& bytes);
bool used_bytes(const char* uuid, uint64_t& bytes);
bool bus_id_of(const char* uuid, BusId& bus_id);
bool is_mig_key(const char* uuid);
bool gpu_of(const char* uuid, Text<64>& gpu_uuid);
bool device_may_exist(const Selector& selector);

}  // namespace fracgpu::nvml
