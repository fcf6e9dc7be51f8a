// The names of a device: its key in the ledger, its number in the vendor's tool, and its place on
// the PCI bus.
#pragma once

#include <cstdint>
#include <string_view>

#include "shim/base/text.h"

namespace fracgpu {

// domain:bus:device.function, and the partition of an AMD GPU that has several. Some kernels put
// the partition beside the bus id, which all partitions then share. Others put it into the
// function.
struct BusId {
  uint32_t domain = 0, bus = 0, device = 0, function = 0;
  int partition = -1;  // -1: none given
  // For a device: its function is the partition's number, as on older kernels.
  bool function_is_partition = false;

  // Reads "0000:0c:00.0", "0c:00.0", and either with "/3" behind it for a partition.
  bool parse(std::string_view text);

  // Whether a selector of this form selects the device there. Without a partition it selects all
  // devices that have the bus id.
  bool selects(const BusId& there) const;
};

// A device that exists.
struct DeviceName {
  std::string_view key;
  // Its other name: a MIG instance's is its GPU's key, an AMD device's is the UUID, which
  // partitions may share. Empty if there is none.
  Text<64> whole{};
  int index = -1;  // of the GPU; -1: not known
  bool has_bus_id = false;
  BusId bus_id{};
};

// What a user wrote to name a device.
struct Selector {
  enum class Kind { any, index, key, bus_id };

  // False if the text is no name of a device.
  bool parse(std::string_view text);
  bool selects(const DeviceName& device) const;
  bool same_as(const Selector& other) const;

  Kind kind = Kind::any;
  int index = -1;
  Text<64>
      key;  // "GPU-<uuid>" of either vendor, "MIG-<uuid>" or "AMD-<gpu_id>", as drivers write it
  BusId bus_id{};
  Text<64> text;  // as written
};

}  // namespace fracgpu
