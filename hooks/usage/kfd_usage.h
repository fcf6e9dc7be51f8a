// Driver-reported usage of AMD devices: what the kernel's compute driver (KFD) shows in sysfs.
//
// A device is a node of KFD's topology with a `gpu_id`, which is unique for every GPU and every
// partition of one; bus ids and UUIDs may be shared between partitions. Its key in the ledger is
// "AMD-" and that number.
#pragma once

#include <cstdint>
#include <span>

#include "shim/base/text.h"
#include "shim/config/device_name.h"

namespace fracgpu::kfd {

using Key = Text<24>;

// Whether a key of the ledger names an AMD device.
bool owns(const char* device_key);

// The key of the topology node that the runtime calls DRIVER_NODE_ID. False when the kernel does
// not show the node, or the node is no GPU.
bool key_of_node(uint32_t node, Key& key);

// The key of the n-th GPU of the machine, as index_of counts them; false when there are fewer.
bool key_of_index(int index, Key& key);

// The key of the device that a library calls by KFD's own number.
bool key_of_gpu_id(uint64_t gpu_id, Key& key);

// The key of the device with a bus id as AMD's tools write it: domain << 32 | partition << 28 |
// bus << 8 | device << 3 | function, where older libraries leave the partition in the function as
// older kernels do. False unless exactly one device is meant.
bool key_of_bdf(uint64_t bdf, Key& key);

bool bytes_of_self(const char* device_key, uint64_t& bytes);
bool bytes_of(uint32_t host_pid, const char* device_key, uint64_t& bytes);
bool index_of(const char* device_key, int& index);
bool physical_bytes(const char* device_key, uint64_t& bytes);
bool bus_id_of(const char* device_key, BusId& bus_id);
// The number in the UUID that the runtime gives the device; 0 on generations without one.
bool unique_id_of(const char* device_key, uint64_t& id);
bool device_may_exist(const Selector& selector);

// Lines of the device's `properties`, whose values are written where they are there. False when the
// kernel does not show the device.
struct Property {
  const char* name;
  uint64_t* value;
};
bool read_properties(const char* device_key, std::span<const Property> wanted);

// The device's name for people: its key with its bus id, since the key alone means little to them.
Text<96> describe(const char* device_key);

}  // namespace fracgpu::kfd
