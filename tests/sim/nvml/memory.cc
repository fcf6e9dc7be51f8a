// Memory as the simulated NVML reports it, straight from the physical node, and reading reaps the
// dead first. FRACGPU_SIM_NVML_RESERVED_MIB is what the driver keeps for itself: beside what is
// used in the second version of the call, part of it in the first, which calls the second through
// the PLT, as the vendor's does. A GPU in MIG mode has the sum of its instances in use. A device
// without a frame buffer has none of all this to report: NOT_SUPPORTED (NVIDIA DGX Spark's
// documentation, known issues). With FRACGPU_SIM_NVML_CC=1 the GPU is in confidential-computing
// mode, and all of it but 1 GiB is protected memory.
#include <algorithm>
#include <cstdlib>

#include "sim/nvml/state.h"

namespace {

unsigned long long reserved(const sim::DeviceRow& device) {
  const char* text = std::getenv("FRACGPU_SIM_NVML_RESERVED_MIB");
  return text != nullptr ? std::strtoull(text, nullptr, 10) << 20 : device.nvml_reserved;
}

unsigned long long used(int dev) {
  unsigned long long sum = sim::nvml_node().used(dev);
  for (const int instance : sim::nvml_node().mig_instances(dev)) {
    sum += sim::nvml_node().used(instance);
  }
  return sum;
}

}  // namespace

SIM_API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t* memory) {
  NVML_CALL(nvmlDeviceGetMemoryInfo_v2);
  NVML_DEVICE(handle, dev);
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (memory->version != kMemoryV2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  const sim::DeviceRow& device = sim::nvml_node().device(dev);
  if (!device.frame_buffer) return NVML_ERROR_NOT_SUPPORTED;
  memory->total = device.nvml_total;
  memory->used = used(dev);
  memory->reserved = std::min<unsigned long long>(reserved(device), memory->total - memory->used);
  memory->free = memory->total - memory->used - memory->reserved;
  return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t* memory) {
  if (const int result = sim::ordered("nvmlDeviceGetMemoryInfo")) return result;
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlMemory_v2_t now = {};
  now.version = kMemoryV2;
  if (const nvmlReturn_t result = nvmlDeviceGetMemoryInfo_v2(handle, &now)) return result;
  memory->total = now.total;
  memory->used = now.used + now.reserved;
  memory->free = now.free;
  return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t handle, nvmlBAR1Memory_t* memory) {
  NVML_CALL(nvmlDeviceGetBAR1MemoryInfo);
  NVML_DEVICE(handle, dev);
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *memory = {128ULL << 30, (128ULL << 30) - (2ULL << 20), 2ULL << 20};
  return NVML_SUCCESS;
}

// The size of what is protected, in bytes; 0 without confidential computing.
static unsigned long long protected_bytes(const sim::DeviceRow& device) {
  return std::getenv("FRACGPU_SIM_NVML_CC") != nullptr ? device.nvml_total - (1ULL << 30) : 0;
}

SIM_API nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t handle,
                                                                  nvmlMemory_t* memory) {
  NVML_CALL(nvmlDeviceGetConfComputeProtectedMemoryUsage);
  NVML_DEVICE(handle, dev);
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const unsigned long long total = protected_bytes(sim::nvml_node().device(dev));
  if (total == 0) return NVML_ERROR_NOT_SUPPORTED;
  *memory = {total, total - used(dev), used(dev)};
  return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetConfComputeMemSizeInfo(nvmlDevice_t handle,
                                                         nvmlConfComputeMemSizeInfo_t* sizes) {
  NVML_CALL(nvmlDeviceGetConfComputeMemSizeInfo);
  NVML_DEVICE(handle, dev);
  if (sizes == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const unsigned long long total = protected_bytes(sim::nvml_node().device(dev));
  if (total == 0) return NVML_ERROR_NOT_SUPPORTED;
  *sizes = {total >> 10, 1ULL << 20};
  return NVML_SUCCESS;
}
