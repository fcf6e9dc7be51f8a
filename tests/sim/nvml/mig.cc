// MIG in the simulated NVML: the instances of a GPU are handles of their own, with memory,
// processes and a UUID; most of what else can be asked of a GPU cannot be asked of them.
#include "sim/nvml/state.h"

namespace {

nvmlReturn_t give(unsigned* out, unsigned value) {
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *out = value;
  return NVML_SUCCESS;
}

nvmlReturn_t attributes(nvmlDevice_t handle, nvmlDeviceAttributes_t* out) {
  NVML_DEVICE(handle, dev);
  if (sim::nvml_node().mig_parent(dev) < 0) return NVML_ERROR_NOT_SUPPORTED;
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *out = {};
  out->multiprocessors = sim::nvml_node().device(dev).multiprocessors;
  out->copy_engines = out->gpu_slices = out->compute_slices = 1;
  out->memory_mib = sim::nvml_node().total(dev) >> 20;
  return NVML_SUCCESS;
}

}  // namespace

SIM_API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned* now, unsigned* pending) {
  NVML_CALL(nvmlDeviceGetMigMode);
  NVML_GPU(handle, dev);
  const unsigned mode = sim::nvml_node().device(dev).mig_instances > 0;
  if (const nvmlReturn_t result = give(now, mode)) return result;
  return give(pending, mode);
}

SIM_API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t handle, unsigned* is_mig) {
  NVML_CALL(nvmlDeviceIsMigDeviceHandle);
  NVML_DEVICE(handle, dev);
  return give(is_mig, sim::nvml_node().mig_parent(dev) >= 0);
}

SIM_API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t handle, unsigned* count) {
  NVML_CALL(nvmlDeviceGetMaxMigDeviceCount);
  NVML_GPU(handle, dev);
  return give(count, sim::nvml_node().device(dev).mig_instances > 0 ? 7 : 0);
}

SIM_API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t handle, unsigned index,
                                                         nvmlDevice_t* out) {
  NVML_CALL(nvmlDeviceGetMigDeviceHandleByIndex);
  NVML_GPU(handle, dev);
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const std::vector<int> instances = sim::nvml_node().mig_instances(dev);
  if (index >= instances.size()) return NVML_ERROR_NOT_FOUND;
  *out = sim::nvml_handle(instances[index]);
  return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t handle,
                                                                  nvmlDevice_t* out) {
  NVML_CALL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle);
  NVML_DEVICE(handle, dev);
  const int parent = sim::nvml_node().mig_parent(dev);
  if (out == nullptr || parent < 0) return NVML_ERROR_INVALID_ARGUMENT;
  *out = sim::nvml_handle(parent);
  return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t handle, unsigned* id) {
  NVML_CALL(nvmlDeviceGetGpuInstanceId);
  NVML_DEVICE(handle, dev);
  if (sim::nvml_node().mig_parent(dev) < 0) return NVML_ERROR_NOT_SUPPORTED;
  return give(id, sim::nvml_node().device(dev).gpu_instance);
}

SIM_API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t handle, unsigned* id) {
  NVML_CALL(nvmlDeviceGetComputeInstanceId);
  NVML_DEVICE(handle, dev);
  if (sim::nvml_node().mig_parent(dev) < 0) return NVML_ERROR_NOT_SUPPORTED;
  return give(id, sim::nvml_node().device(dev).compute_instance);
}

SIM_API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t handle, nvmlDeviceAttributes_t* out) {
  NVML_CALL(nvmlDeviceGetAttributes_v2);
  return attributes(handle, out);
}
SIM_API nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t handle, nvmlDeviceAttributes_t* out) {
  NVML_CALL(nvmlDeviceGetAttributes);
  return nvmlDeviceGetAttributes_v2(handle, out);
}
