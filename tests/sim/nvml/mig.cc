// MIG in the simulated NVML: the mode of a GPU, and MIG devices, which are handles of their own
// with memory, processes and a UUID; most of what else can be asked of a GPU cannot be asked of
// them. Instances are made in mig_instances.cc and mig_compute.cc. FRACGPU_SIM_NVML_ROOT=1 makes
// the caller root for NVML, =0 makes it none; without it the caller is what it is.
#include <unistd.h>

#include <cstdlib>

#include "sim/nvml/state.h"

namespace sim {

bool nvml_privileged() {
  const char* text = std::getenv("FRACGPU_SIM_NVML_ROOT");
  return text != nullptr && *text != '\0' ? *text == '1' : geteuid() == 0;
}

nvmlReturn_t nvml_result(MigResult result) {
  switch (result) {
    case MigResult::kDone:
      return NVML_SUCCESS;
    case MigResult::kOff:
      return NVML_ERROR_NOT_SUPPORTED;
    case MigResult::kNoRoom:
      return NVML_ERROR_INSUFFICIENT_RESOURCES;
    case MigResult::kInUse:
      return NVML_ERROR_IN_USE;
    case MigResult::kGone:
      break;
  }
  return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvml_places(uint32_t bits, unsigned size, nvmlGpuInstancePlacement_t* out,
                         unsigned* count) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  for (unsigned start = 0; bits >> start != 0; ++start) {
    if ((bits >> start & 1) == 0) continue;
    if (out != nullptr) out[*count] = {start, size};
    ++*count;
  }
  return NVML_SUCCESS;
}

}  // namespace sim

namespace {

nvmlReturn_t give(unsigned* out, unsigned value) {
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *out = value;
  return NVML_SUCCESS;
}

nvmlReturn_t attributes(nvmlDevice_t handle, nvmlDeviceAttributes_t* out) {
  NVML_DEVICE(handle, dev);
  const sim::MigDevice* const mig = sim::nvml_mig_device(handle);
  if (mig == nullptr) return NVML_ERROR_NOT_SUPPORTED;
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const sim::MigProfile& profile = sim::profile_of(sim::nvml_node(), dev);
  *out = {};
  out->multiprocessors = sim::mig_multiprocessors(sim::nvml_node(), *mig);
  out->copy_engines = profile.copy_engines;
  out->decoders = profile.decoders;
  out->jpegs = profile.jpegs;
  out->ofas = profile.ofas;
  out->gpu_slices = profile.slices;
  out->compute_slices = sim::compute_instance(sim::nvml_node(), *mig).slices;
  out->memory_mib = sim::nvml_node().total(dev) >> 20;
  return NVML_SUCCESS;
}

}  // namespace

SIM_API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned* now, unsigned* pending) {
  NVML_CALL(nvmlDeviceGetMigMode);
  NVML_GPU(handle, dev);
  const sim::DeviceRow& row = sim::nvml_node().device(dev);
  if (const nvmlReturn_t result = give(now, row.mig_mode.load())) return result;
  return give(pending, row.mig_mode_pending.load());
}

// The mode stays pending while somebody uses the GPU (nvml.h).
SIM_API nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t handle, unsigned mode,
                                          nvmlReturn_t* activation) {
  NVML_CALL(nvmlDeviceSetMigMode);
  NVML_GPU(handle, dev);
  if (mode > 1 || activation == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (sim::card_of(sim::nvml_node(), dev) == nullptr) return NVML_ERROR_NOT_SUPPORTED;
  NVML_ROOT();
  *activation = sim::nvml_result(sim::set_mig_mode(sim::nvml_node(), dev, mode == 1));
  return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t handle, unsigned* is_mig) {
  NVML_CALL(nvmlDeviceIsMigDeviceHandle);
  NVML_DEVICE(handle, dev);
  return give(is_mig, sim::nvml_node().mig_parent(dev) >= 0);
}

SIM_API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t handle, unsigned* count) {
  NVML_CALL(nvmlDeviceGetMaxMigDeviceCount);
  NVML_GPU(handle, dev);
  const bool on = sim::mig_is_on(sim::nvml_node(), dev);
  return give(count, on ? sim::card_of(sim::nvml_node(), dev)->slices : 0);
}

SIM_API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t handle, unsigned index,
                                                         nvmlDevice_t* out) {
  NVML_CALL(nvmlDeviceGetMigDeviceHandleByIndex);
  NVML_GPU(handle, dev);
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const std::vector<sim::MigDevice> devices = sim::mig_devices(sim::nvml_node(), dev);
  if (index >= devices.size()) return NVML_ERROR_NOT_FOUND;
  *out = sim::nvml_handle(devices[index]);
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
  const sim::MigDevice* const mig = sim::nvml_mig_device(handle);
  if (mig == nullptr) return NVML_ERROR_NOT_SUPPORTED;
  return give(id, sim::compute_instance(sim::nvml_node(), *mig).id);
}

SIM_API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t handle, nvmlDeviceAttributes_t* out) {
  NVML_CALL(nvmlDeviceGetAttributes_v2);
  return attributes(handle, out);
}
SIM_API nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t handle, nvmlDeviceAttributes_t* out) {
  NVML_CALL(nvmlDeviceGetAttributes);
  return nvmlDeviceGetAttributes_v2(handle, out);
}
