// What the simulated NVML keeps between calls: a count of initialisations and the opened node.
// NVML only looks: it never takes a row or memory in the node. Each exported function begins with
// NVML_CALL, which runs ordered failures and refuses calls before nvmlInit.
#pragma once

#include <vector>

#include "sim/node/inject.h"
#include "sim/node/mig.h"
#include "sim/node/node.h"
#include "sim/nvml/abi.h"

namespace sim {

nvmlReturn_t nvml_init();
nvmlReturn_t nvml_shutdown();
bool nvml_ready();
Node& nvml_node();

// The GPUs that NVML numbers: rows of the node, which handles stand for, as they do for MIG
// instances.
std::vector<int> nvml_devices();
nvmlDevice_t nvml_handle(int dev);
nvmlDevice_t nvml_handle(const MigDevice& device);
// Of a MIG device its GPU instance's row; -1 for anything that is not a handle of ours, or not any
// more, because what it stood for has been taken away.
int nvml_device(nvmlDevice_t handle);
const MigDevice* nvml_mig_device(nvmlDevice_t handle);  // null: not a MIG device's

// What a handle of an instance stands for. They are kept for good, so that the handle of one that
// is gone never means another one.
struct GpuInstance {
  int row;
  uint64_t serial;
};
nvmlGpuInstance_t nvml_gpu_instance(int row);
bool nvml_gpu_instance(nvmlGpuInstance_t handle, GpuInstance* out);  // false: none, or gone
nvmlReturn_t nvml_result(MigResult result);
// Where bits say that something of this size can start.
nvmlReturn_t nvml_places(uint32_t bits, unsigned size, nvmlGpuInstancePlacement_t* out,
                         unsigned* count);
// Root, or what FRACGPU_SIM_NVML_ROOT says: 1 or 0.
bool nvml_privileged();

// What FRACGPU_SIM_NVML_DRIVER says, or else the node.
const char* nvml_driver_version();

// Copies a text with its end, or says that it does not fit.
nvmlReturn_t copy_text(char* to, unsigned size, const char* text);

}  // namespace sim

#define NVML_CALL(name)                                          \
  do {                                                           \
    if (const int result = ::sim::ordered(#name)) return result; \
    if (!::sim::nvml_ready()) return NVML_ERROR_UNINITIALIZED;   \
  } while (false)

#define NVML_DEVICE(handle, dev)              \
  const int dev = ::sim::nvml_device(handle); \
  if (dev < 0) return NVML_ERROR_INVALID_ARGUMENT

// What only root may do.
#define NVML_ROOT() \
  if (!::sim::nvml_privileged()) return NVML_ERROR_NO_PERMISSION

// Handles of MIG instances are no arguments of calls about the whole GPU.
#define NVML_GPU(handle, dev) \
  NVML_DEVICE(handle, dev);   \
  if (::sim::nvml_node().mig_parent(dev) >= 0) return NVML_ERROR_INVALID_ARGUMENT
