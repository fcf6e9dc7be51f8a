// Lists the instances of a device with NVML; see mig_instances.h.
#include "hooks/smi/nvml/mig_instances.h"

#include "hooks/smi/nvml/library.h"

namespace fracgpu::nvml {

Parts::Parts(nvmlDevice_t device) {
  unsigned is_instance = 0, mode = 0, pending = 0, most = 0;
  if (real::nvmlDeviceIsMigDeviceHandle(device, &is_instance) != kSuccess) is_instance = 0;
  if (is_instance == 0 && real::nvmlDeviceGetMigMode(device, &mode, &pending) == kSuccess &&
      mode == 1 && real::nvmlDeviceGetMaxMigDeviceCount(device, &most) == kSuccess) {
    nvmlDevice_t instance = nullptr;
    for (unsigned i = 0; i < most; ++i) {  // with gaps, where instances were removed
      if (real::nvmlDeviceGetMigDeviceHandleByIndex(device, i, &instance) == kSuccess) {
        add(instance, true);
      }
    }
  }
  if (count_ == 0) add(device, is_instance != 0);
}

void Parts::add(nvmlDevice_t device, bool is_instance) {
  if (count_ == kMost) return;
  Part& part = parts_[count_];
  part.handle = device;
  if (real::nvmlDeviceGetUUID(device, part.key, sizeof part.key) != kSuccess) return;
  ++count_;
  if (!is_instance) return;
  real::nvmlDeviceGetGpuInstanceId(device, &part.gpu_instance);
  real::nvmlDeviceGetComputeInstanceId(device, &part.compute_instance);
}

}  // namespace fracgpu::nvml
