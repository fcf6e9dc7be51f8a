// The truth: what the driver itself says about devices and about who holds what.
//
// Read on cold paths only (it costs milliseconds): when a context is made or destroyed, and
// before a dead process's memory is given out again. Devices are named by their key
// in the ledger. Defined in hooks/vendors.cc, which asks the vendor whose key it is; every
// function returns false where that vendor's answer cannot be had or cannot be trusted.
#pragma once

#include <cstdint>

#include "shim/device_name.h"

namespace fracgpu::truth {

// Device memory in bytes that the driver counts for this process, whatever made it allocate.
bool bytes_of_self(const char* device_key, uint64_t& bytes);

// The same for another process, by its PID in the initial PID namespace.
bool bytes_of(uint32_t host_pid, const char* device_key, uint64_t& bytes);

// The device's number as the vendor's tool prints it, and its memory in bytes.
bool index_of(const char* device_key, int& index);
bool physical_bytes(const char* device_key, uint64_t& bytes);

// What is in use on the device by everybody, in bytes. NVIDIA's only.
bool used_bytes(const char* device_key, uint64_t& bytes);

// Whether the device is a part of a GPU that has a name of its own, as MIG instances are, and that
// name. AMD's partitions are known by their bus ids and numbers alone.
bool is_part(const char* device_key);
bool whole_of(const char* device_key, Text<64>& whole_key);

bool bus_id_of(const char* device_key, BusId& bus_id);

// The device's name for people: its key, with where it is if the key does not tell a person which.
Text<96> describe(const char* device_key);

// Whether the machine has a device that the selector names. True also when nobody can tell: only a
// sure "no" counts.
bool device_may_exist(const Selector& selector);

}  // namespace fracgpu::truth
