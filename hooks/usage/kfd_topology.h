// AMD's devices as the kernel's compute driver (KFD) shows them in sysfs.
//
// A device is a node of KFD's topology with a `gpu_id`, which is unique for every GPU and every
// partition. Partitions may share bus ids and UUIDs. The key in the ledger is "AMD-" and the
// `gpu_id`; for a GPU that KFD does not show, see key_of_drm_node. Nothing is cached: partitions
// come and go when an operator changes the mode, and only cold paths read this. No function takes a
// lock or allocates.
#pragma once

#include <cstdint>
#include <span>

#include "shim/base/text.h"
#include "shim/config/device_name.h"

namespace fracgpu::kfd {

inline constexpr char kRoot[] = "/sys/class/kfd/kfd";

using Key = Text<24>;

struct Gpu {
  uint32_t node;  // in KFD's topology: the order in which KFD found them, and the runtime's
  uint32_t gpu_id;
  uint32_t render_minor;  // of its /dev/dri/renderD*
  uint64_t unique_id;     // in the UUID that the runtime gives it; 0 on generations without one
  BusId bus_id;

  Key key() const {
    Key text;
    text.format("AMD-{}", gpu_id);
    return text;
  }
  // "GPU-" and 16 digits; empty if the device has no UUID.
  Text<64> uuid() const {
    Text<64> text;
    if (unique_id != 0) text.format("GPU-{:016x}", unique_id);
    return text;
  }
  // In bytes, by the kernel's description of its memory; 0 if there is none.
  uint64_t physical_bytes() const;
  // Whether the runtime can open the device. Containers without a device cgroup show more devices.
  bool has_render_node() const;
};

// The GPUs that this process may read about, sorted by bus id. rocm-smi numbers them in this order.
// KFD hides other GPUs from containers (EPERM).
class GpuList {
 public:
  GpuList();
  static constexpr int kMost = 128;  // twice what eight MI300X have in their smallest partitions

  int count() const { return count_; }
  const Gpu& operator[](int index) const { return gpus_[index]; }
  const Gpu* begin() const { return gpus_; }
  const Gpu* end() const { return gpus_ + count_; }
  // Null if the list does not have the device.
  const Gpu* find(uint64_t gpu_id) const;
  const Gpu* find(const char* device_key) const;

 private:
  void tell_partitions();

  int count_ = 0;
  Gpu gpus_[kMost];
};

// `owns`: whether a ledger key or a UUID names an AMD device. `gpu_id_of`: KFD's number in the key.
bool owns(const char* device_key);
bool gpu_id_of(const char* device_key, uint64_t& gpu_id);

// The key of the device with this KFD number, as libraries use it. False if KFD does not show the
// device.
bool key_of_gpu_id(uint64_t gpu_id, Key& key);

// The key of the device with a bus id as AMD's tools write it: domain << 32 | partition << 28 | bus
// << 8 | device << 3 | function. Older libraries leave the partition in the function, as older
// kernels do. False unless exactly one device matches.
bool key_of_bdf(uint64_t bdf, Key& key);

// The key of the device of a DRM node: /dev/dri/renderD<minor>, or the primary node. A GPU that KFD
// does not show (a kernel without KFD, an old generation) has "AMD-" and its bus id instead. False
// if the node belongs to another driver than amdgpu.
bool key_of_drm_node(uint32_t minor, Key& key);

// `uuid_of`: the UUID as the runtime prints it, "GPU-" and 16 digits. Partitions may share it.
// False on generations without one.
bool uuid_of(const char* device_key, Text<64>& uuid);
bool index_of(const char* device_key, int& index);
bool physical_bytes(const char* device_key, uint64_t& bytes);
bool bus_id_of(const char* device_key, BusId& bus_id);
bool device_may_exist(const Selector& selector);

// A line of the device's `properties`. `read_properties` writes the values of the lines that exist,
// and returns false if the kernel does not show the device.
struct Property {
  const char* name;
  uint64_t* value;
};
bool read_properties(const char* device_key, std::span<const Property> wanted);

// The device's name for messages: its key and its bus id, because the key alone says little to
// users.
Text<96> describe(const char* device_key);

}  // namespace fracgpu::kfd
