// What the simulated NVML keeps between calls: a count of initialisations and the opened node.
// NVML only looks: it never takes a row or memory in the node. Each exported function begins with
// NVML_CALL, which runs ordered failures and refuses calls before nvmlInit.
#pragma once

#include <vector>

#include "sim/node/inject.h"
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
// -1 for anything that is not a handle of ours.
int nvml_device(nvmlDevice_t handle);

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

// Handles of MIG instances are no arguments of calls about the whole GPU.
#define NVML_GPU(handle, dev) \
  NVML_DEVICE(handle, dev);   \
  if (::sim::nvml_node().mig_parent(dev) >= 0) return NVML_ERROR_INVALID_ARGUMENT
