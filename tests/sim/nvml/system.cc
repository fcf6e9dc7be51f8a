// Initialisation, versions, error texts and process names of the simulated NVML.
// The driver version is the node's unless FRACGPU_SIM_NVML_DRIVER says otherwise, the CUDA
// version 13.0 unless FRACGPU_SIM_DRIVER_VERSION does. Initialisation is counted, as in the
// vendor's library.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>

#include "sim/nvml/state.h"

struct SimNvmlDevice {
  int dev;
  sim::MigDevice mig;  // of a GPU: no row
};

namespace sim {
namespace {

std::mutex mutex;
int initialisations = 0;
// Opened once and kept: handles stay usable across a shutdown and another start.
Node* node = nullptr;
SimNvmlDevice handles[kMaxDevices];
std::deque<SimNvmlDevice> mig_handles;  // never fewer: what is gone must not come to life again

const char* from_environment(const char* variable, const char* fallback) {
  const char* text = std::getenv(variable);
  return text != nullptr && *text != '\0' ? text : fallback;
}

}  // namespace

const char* nvml_driver_version() {
  return from_environment("FRACGPU_SIM_NVML_DRIVER", nvml_node().driver());
}

nvmlReturn_t nvml_init() {
  const std::lock_guard<std::mutex> guard(mutex);
  if (node == nullptr) {
    std::string error;
    auto opened = Node::from_environment(&error);
    // Without such a device its driver is not loaded either.
    if (opened != nullptr && opened->device_count(Vendor::kNvidia) > 0) node = opened.release();
    if (node == nullptr) return NVML_ERROR_DRIVER_NOT_LOADED;
  }
  ++initialisations;
  return NVML_SUCCESS;
}

nvmlReturn_t nvml_shutdown() {
  const std::lock_guard<std::mutex> guard(mutex);
  if (initialisations == 0) return NVML_ERROR_UNINITIALIZED;
  --initialisations;
  return NVML_SUCCESS;
}

bool nvml_ready() {
  const std::lock_guard<std::mutex> guard(mutex);
  return initialisations > 0;
}

Node& nvml_node() {
  return *node;
}

std::vector<int> nvml_devices() {
  return nvml_node().devices(Vendor::kNvidia);
}

nvmlDevice_t nvml_handle(int dev) {
  handles[dev].dev = dev;
  return &handles[dev];
}

nvmlDevice_t nvml_handle(const MigDevice& device) {
  const std::lock_guard<std::mutex> guard(mutex);
  for (SimNvmlDevice& known : mig_handles) {
    if (known.mig.serial == device.serial) return &known;
  }
  return &mig_handles.emplace_back(device.dev, device);
}

int nvml_device(nvmlDevice_t handle) {
  for (int dev = 0; dev < nvml_node().device_count(); ++dev) {
    if (handle != &handles[dev]) continue;
    return nvml_node().device(dev).vendor == Vendor::kNvidia && nvml_node().mig_parent(dev) < 0
               ? dev
               : -1;
  }
  const MigDevice* device = nvml_mig_device(handle);
  return device != nullptr && is_there(nvml_node(), *device) ? device->dev : -1;
}

const MigDevice* nvml_mig_device(nvmlDevice_t handle) {
  const std::lock_guard<std::mutex> guard(mutex);
  for (const SimNvmlDevice& known : mig_handles) {
    if (&known == handle) return &known.mig;
  }
  return nullptr;
}

nvmlReturn_t copy_text(char* to, unsigned size, const char* text) {
  if (to == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (std::strlen(text) >= size) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::strcpy(to, text);
  return NVML_SUCCESS;
}

}  // namespace sim

SIM_API nvmlReturn_t nvmlInit_v2() {
  if (const int result = sim::ordered("nvmlInit_v2")) return result;
  return sim::nvml_init();
}
SIM_API nvmlReturn_t nvmlInit() {
  return nvmlInit_v2();
}
SIM_API nvmlReturn_t nvmlInitWithFlags(unsigned) {
  if (const int result = sim::ordered("nvmlInitWithFlags")) return result;
  return sim::nvml_init();
}
SIM_API nvmlReturn_t nvmlShutdown() {
  if (const int result = sim::ordered("nvmlShutdown")) return result;
  return sim::nvml_shutdown();
}

SIM_API const char* nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case NVML_SUCCESS:
      return "Success";
    case NVML_ERROR_UNINITIALIZED:
      return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
      return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
      return "Not Supported";
    case NVML_ERROR_NO_PERMISSION:
      return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND:
      return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
      return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
      return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT:
      return "Timeout";
    case NVML_ERROR_FUNCTION_NOT_FOUND:
      return "Function Not Found";
    case 15:
      return "GPU is lost";
    case NVML_ERROR_RESET_REQUIRED:
      return "GPU requires reset";
    case NVML_ERROR_IN_USE:
      return "In use by another client";
    case NVML_ERROR_INSUFFICIENT_RESOURCES:
      return "Insufficient Resources";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
      return "Argument version mismatch";
    default:
      return "Unknown Error";
  }
}

SIM_API nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned length) {
  NVML_CALL(nvmlSystemGetDriverVersion);
  return sim::copy_text(version, length, sim::nvml_driver_version());
}
SIM_API nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned length) {
  NVML_CALL(nvmlSystemGetNVMLVersion);
  const std::string text = std::string("13.") + sim::nvml_driver_version();
  return sim::copy_text(version, length, text.c_str());
}
SIM_API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  NVML_CALL(nvmlSystemGetCudaDriverVersion_v2);
  if (version == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *version = std::atoi(sim::from_environment("FRACGPU_SIM_DRIVER_VERSION", "13000"));
  return NVML_SUCCESS;
}
SIM_API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}

SIM_API nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char* name, unsigned length) {
  NVML_CALL(nvmlSystemGetProcessName);
  if (name == nullptr || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
  std::string text;
  if (!std::getline(file, text, '\0') || text.empty()) return NVML_ERROR_NOT_FOUND;
  std::snprintf(name, length, "%s", text.c_str());
  return NVML_SUCCESS;
}

// Nothing ever happens on this node, so waiting for an event only times out.
SIM_API nvmlReturn_t nvmlEventSetCreate(void** set) {
  NVML_CALL(nvmlEventSetCreate);
  if (set == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  static char only;
  *set = &only;
  return NVML_SUCCESS;
}
SIM_API nvmlReturn_t nvmlEventSetFree(void*) {
  NVML_CALL(nvmlEventSetFree);
  return NVML_SUCCESS;
}
SIM_API nvmlReturn_t nvmlEventSetWait_v2(void*, void*, unsigned) {
  NVML_CALL(nvmlEventSetWait_v2);
  return NVML_ERROR_TIMEOUT;
}
SIM_API nvmlReturn_t nvmlUnitGetCount(unsigned* count) {
  NVML_CALL(nvmlUnitGetCount);
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}
SIM_API nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned* count) {
  NVML_CALL(nvmlGetExcludedDeviceCount);
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}
