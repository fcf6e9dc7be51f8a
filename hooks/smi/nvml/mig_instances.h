// The ledger's devices for an NVML handle: the device itself or, for a GPU in MIG mode, its
// instances. Each instance has its own cap.
#pragma once

#include "hooks/smi/nvml/abi.h"

namespace fracgpu::nvml {

struct Part {
  nvmlDevice_t handle;
  char key[kUuidBytes];
  unsigned gpu_instance = kNoInstance, compute_instance = kNoInstance;
};

class Parts {
 public:
  static constexpr unsigned kMost = 16;  // a GPU has 7 slices, and an instance at least one

  // Empty if NVML does not list them.
  explicit Parts(nvmlDevice_t device);

  const Part* begin() const { return parts_; }
  const Part* end() const { return parts_ + count_; }

 private:
  void add(nvmlDevice_t device, bool is_instance);

  Part parts_[kMost];
  unsigned count_ = 0;
};

}  // namespace fracgpu::nvml
