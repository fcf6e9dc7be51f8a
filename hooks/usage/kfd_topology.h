// AMD's devices as the kernel's compute driver (KFD) shows them in sysfs.
//
// A device is a node of KFD's topology with a `gpu_id`, which is unique for every GPU and every
// partition of one; bus ids and UUIDs may be shared between partitions. Its key in the ledger is
// "AMD-" and that number. Nothing is kept: partitions come and go when an operator changes the
// mode, and all of this is read on cold paths only. No function takes a lock or allocates.
#pragma once

#include <cstdint>
#include <span>

#include "shim/base/text.h"
#include "shim/config/device_name.h"

namespace fracgpu::kfd {

inline constexpr char kRoot[] = "/sys/class/kfd/kfd";

using Key = Text<24>;

struct Gpu {
  uint32_t node;  // in KFD's topology; the order in which it found them, and the runtime's
  uint32_t gpu_id;
  uint32_t render_minor;  // of its /dev/dri/renderD*
  uint64_t unique_id;     // in the UUID that the runtime gives it; 0 on generations without one
  BusId bus_id;

  Key key() const {
    Key text;
    text.format("AMD-{}", gpu_id);
    return text;
  }
  // "GPU-" and 16 digits; empty where it has none.
  Text<64> uuid() const {
    Text<64> text;
    if (unique_id != 0) text.format("GPU-{:016x}", unique_id);
    return text;
  }
  // Bytes, by the kernel's description of its memory; 0 where there is none.
  uint64_t physical_bytes() const;
  // Whether the runtime can open it. Containers without a device cgroup show more than that.
  bool has_render_node() const;
};

// The GPUs that this process may read about, in the order of their bus ids, in which rocm-smi
// numbers them. KFD forbids others to containers (EPERM).
class GpuList {
 public:
  GpuList();
  static constexpr int kMost = 128;  // twice what eight MI300X have in their smallest partitions

  int count() const { return count_; }
  const Gpu& operator[](int index) const { return gpus_[index]; }
  const Gpu* begin() const { return gpus_; }
  const Gpu* end() const { return gpus_ + count_; }
  // Null when it is not there.
  const Gpu* find(uint64_t gpu_id) const;
  const Gpu* find(const char* device_key) const;

 private:
  void tell_partitions();

  int count_ = 0;
  Gpu gpus_[kMost];
};

// Whether a key of the ledger, or a UUID, names an AMD device; and KFD's number in the key.
bool owns(const char* device_key);
bool gpu_id_of(const char* device_key, uint64_t& gpu_id);

// The key of the device that a library calls by KFD's own number; false when KFD does not show it.
bool key_of_gpu_id(uint64_t gpu_id, Key& key);

// The key of the device with a bus id as AMD's tools write it: domain << 32 | partition << 28 |
// bus << 8 | device << 3 | function, where older libraries leave the partition in the function as
// older kernels do. False unless exactly one device is meant.
bool key_of_bdf(uint64_t bdf, Key& key);

// As the runtime names it, "GPU-" and 16 digits; partitions may share it. False on generations
// without one.
bool uuid_of(const char* device_key, Text<64>& uuid);
bool index_of(const char* device_key, int& index);
bool physical_bytes(const char* device_key, uint64_t& bytes);
bool bus_id_of(const char* device_key, BusId& bus_id);
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
